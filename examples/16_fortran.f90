! cc -c -O2 -D_GNU_SOURCE -DINSITU_IMPLEMENTATION -x c insitubatch.h -o insitubatch.o && mpifort -O2 examples/bindings/insitubatch.f90 examples/16_fortran.f90 insitubatch.o -o 16_fortran -luring -lcurl -llz4 -lzstd -lpthread -lm
! Trains in Fortran, under MPI: a forecast of next month's winds from this month's, by one factor and
! one constant for each place. The configuration is JSON, and a batch's arrays become Fortran's
! pointers without a copy, with the axes reversed: (lon, lat, row). Gradients are summed by
! MPI_Allreduce. Needs MPI's mpifort, as of Debian's libopenmpi-dev. Run: mpirun -n 2 ./16_fortran
! [ARCHIVE]; exit status 1: the forecast is no better than that nothing changes.
program train_winds
  use, intrinsic :: iso_fortran_env, only: int64, real32, error_unit
  use insitubatch
  use mpi_f08
  implicit none
  integer, parameter :: epochs = 10, global_batch = 16
  real(real32), parameter :: rate = 0.2
  type(c_ptr) :: loader = c_null_ptr, iter = c_null_ptr, batch = c_null_ptr
  type(insitu_error) :: err
  real(real32), allocatable :: factor(:,:), constant(:,:), miss(:,:), gradient(:,:,:)
  integer :: rank, world, epoch
  real :: losses(0:1)

  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, world)
  call open_all()
  do epoch = 1, epochs
    losses = train_epoch()
    if (rank == 0) print '(a,i3,a,f8.4,a,f8.4)', 'epoch', epoch, '  loss', losses(0), &
      '  if nothing changed', losses(1)
  end do
  call insitu_iter_close(iter)
  call insitu_loader_close(loader)
  call MPI_Finalize()
  if (losses(0) > 0.95 * losses(1)) error stop 1, quiet=.true.

contains

  ! An error ends all ranks; another status than 0 and the end of an epoch does as well.
  subroutine check(status)
    integer(c_int32_t), intent(in) :: status
    if (status == INSITU_OK .or. status == INSITU_END) return
    write (error_unit, '(a)') insitu_message(err)
    call MPI_Abort(MPI_COMM_WORLD, 2)
  end subroutine

  ! Rank and world come from mpirun. What is read is normalised: 4 m/s become 1.
  subroutine open_all()
    character(:), allocatable :: archive, config
    character(8) :: rows
    integer :: n
    type(insitu_array), pointer :: x
    integer(int64), pointer :: lengths(:)
    call get_command_argument(1, length=n)
    allocate(character(n) :: archive)
    call get_command_argument(1, archive)
    if (n == 0) archive = 'examples/data/winds.zarr'
    write (rows, '(i0)') global_batch / world
    config = '{"url": "' // archive // '", "rank": "environment", "batch_size": ' // trim(rows) // ', &
      &"lanes": 4, "sample_dim": "time", "split": [0.8, 0.1, 0.1], "variables": [ &
      &{"label": "x", "path": "uwnd", "ops": [{"op": "norm", "mean": 0, "std": 4}]}, &
      &{"label": "y", "path": "uwnd", "offset": 1, "ops": [{"op": "norm", "mean": 0, "std": 4}]}]}'
    call check(insitu_loader_open_json(config // c_null_char, out=loader, err=err))
    call check(insitu_iter_open_json(loader, '{"split": "train"}' // c_null_char, out=iter, err=err))
    call c_f_pointer(insitu_loader_array(loader, 0_int64), x)
    call c_f_pointer(x%shape, lengths, [x%ndim])
    allocate(factor(lengths(3), lengths(2)), source=1.0)
    allocate(constant, miss, mold=factor)
    allocate(gradient(lengths(3), lengths(2), 2))
    constant = 0
  end subroutine

  ! One epoch: the mean squared errors of this forecast, and of none.
  function train_epoch() result(losses)
    real :: losses(0:1), sums(0:2)
    integer(c_int32_t) :: status
    sums = 0
    do
      status = insitu_iter_next(iter, int(INSITU_FOREVER, int64), batch, err)
      call check(status)
      if (status == INSITU_END) exit
      call train_batch(sums)
      call insitu_batch_release(batch)
    end do
    call MPI_Allreduce(MPI_IN_PLACE, sums, 3, MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    losses = sums(0:1) / sums(2)
  end function

  ! A step of gradient descent, the same on every rank.
  subroutine train_batch(sums)
    real, intent(inout) :: sums(0:2)
    real(real32), pointer :: x(:,:,:), y(:,:,:)
    integer(c_int32_t) :: status
    integer :: row
    call insitu_view(batch, 'x', x, status)
    call check(status)
    call insitu_view(batch, 'y', y, status)
    call check(status)
    gradient = 0
    do row = 1, size(x, 3)
      miss = factor * x(:, :, row) + constant - y(:, :, row)
      gradient(:, :, 1) = gradient(:, :, 1) + miss * x(:, :, row)
      gradient(:, :, 2) = gradient(:, :, 2) + miss
      sums = sums + [sum(miss**2), sum((x(:, :, row) - y(:, :, row))**2), real(size(miss))]
    end do
    call MPI_Allreduce(MPI_IN_PLACE, gradient, size(gradient), MPI_REAL, MPI_SUM, MPI_COMM_WORLD)
    factor = factor - rate / global_batch * gradient(:, :, 1)
    constant = constant - rate / global_batch * gradient(:, :, 2)
  end subroutine
end program
