  ! A text of C's, without its NUL; '' for NULL.
  function insitu_text(text) result(returned)
    type(c_ptr), intent(in) :: text
    character(:), allocatable :: returned
    character(kind=c_char), pointer :: letters(:)
    integer(c_size_t) :: n, i
    interface
      function strlen(text) result(n) bind(C, name="strlen")
        import
        type(c_ptr), value :: text
        integer(c_size_t) :: n
      end function
    end interface
    returned = ''
    if (.not. c_associated(text)) return
    n = strlen(text)
    call c_f_pointer(text, letters, [n])
    deallocate(returned)
    allocate(character(n) :: returned)
    do i = 1, n
      returned(i:i) = letters(i)
    end do
  end function

  ! The status of an error by its name, and the message: "INSITU_E_NOTFOUND: ...".
  function insitu_message(err) result(returned)
    type(insitu_error), intent(in) :: err
    character(:), allocatable :: returned
    integer :: i
    returned = insitu_text(insitu_status_name(err%status)) // ': '
    do i = 1, size(err%message)
      if (err%message(i) == c_null_char) exit
      returned = returned // err%message(i)
    end do
  end function

  ! The fields of a batch, which the handle points to; gone with the batch.
  subroutine insitu_batch_view(batch, info)
    type(c_ptr), intent(in) :: batch
    type(insitu_batch), pointer, intent(out) :: info
    call c_f_pointer(batch, info)
  end subroutine

  ! Array i of a batch, from 0; not associated: there is none.
  subroutine insitu_batch_array(batch, i, array)
    type(c_ptr), intent(in) :: batch
    integer(c_int64_t), intent(in) :: i
    type(insitu_array), pointer, intent(out) :: array
    type(insitu_batch), pointer :: info
    type(insitu_array), pointer :: arrays(:)
    nullify(array)
    call c_f_pointer(batch, info)
    if (i < 0 .or. i >= info%n_arrays) return
    call c_f_pointer(info%arrays, arrays, [info%n_arrays])
    array => arrays(i + 1)
  end subroutine

  ! The sample of each row; with several axes, the index on each axis: (n_axes, rows).
  subroutine insitu_batch_samples(batch, samples)
    type(c_ptr), intent(in) :: batch
    integer(c_int64_t), pointer, intent(out) :: samples(:,:)
    type(insitu_batch), pointer :: info
    call c_f_pointer(batch, info)
    call c_f_pointer(info%axis_indices, samples, [info%n_axes, info%rows])
  end subroutine

  ! The lengths of an array's axes in Fortran's order, the last axis of C first. INSITU_E_DTYPE: it
  ! has elements of another type than `codes`; INSITU_E_SHAPE: it has more or fewer axes;
  ! INSITU_E_DEVICE: it lies in the memory of a device.
  subroutine insitu_view_shape(array, codes, lengths, status)
    type(insitu_array), intent(in) :: array
    integer(c_int32_t), intent(in) :: codes(:)
    integer(c_int64_t), intent(out) :: lengths(:)
    integer(c_int32_t), intent(out) :: status
    integer(c_int64_t), pointer :: shape(:)
    lengths = 0
    status = INSITU_E_DTYPE
    if (.not. any(codes == array%dtype)) return
    status = INSITU_E_SHAPE
    if (size(lengths) /= array%ndim) return
    status = INSITU_E_DEVICE
    if (array%place == INSITU_DEVICE) return
    call c_f_pointer(array%shape, shape, [array%ndim])
    lengths = shape(array%ndim:1:-1)
    status = INSITU_OK
  end subroutine

