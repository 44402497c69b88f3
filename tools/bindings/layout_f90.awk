# The same in Fortran: addresses of the fields of a variable of each type. A program of one long body takes compilers long: a
# subroutine for each.
END {
  if (failed) exit 1
  print "program layout\n  use insitubatch\n  implicit none"
  for (i = 1; i <= n_structs; i++) print "  call s" i "()"
  for (i = 1; i <= n_constants; i++) print "  print '(a,1x,i0)', '" constant_name[i] "', " constant_name[i]
  print "contains"
  print "  subroutine show(name, at, base)\n    character(*), intent(in) :: name\n    type(c_ptr), intent(in) :: at, base"
  print "    integer(c_intptr_t) :: distance"
  print "    distance = transfer(at, distance) - transfer(base, distance)\n    print '(a,1x,i0)', name, distance\n  end subroutine"
  for (i = 1; i <= n_structs; i++) {
    s = struct_name[i]
    print "  subroutine s" i "()\n    type(" s "), target :: x"
    print "    print '(a,1x,i0)', '" s "', c_sizeof(x)"
    for (k = 1; k <= n_fields[i]; k++) {
      name = "x%" field_name[i, k] (field_length[i, k] ? "(1)" : "")
      print "    call show('" s "." field_name[i, k] "', c_loc(" name "), c_loc(x))"
    }
    print "  end subroutine"
  }
  print "end program"
}
