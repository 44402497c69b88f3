# Fortran 2018 by iso_c_binding: constants, types, interfaces of all functions, and procedures that make pointer arrays of a batch.

function say(s) { print s }

# A line of Fortran, continued where it has more than 100 columns: broken behind a comma.
function wrap(s, indent,   i, at) {
  while (length(s) > 100) {
    at = 0
    for (i = 20; i <= 96; i++) if (substr(s, i, 2) == ", ") at = i
    if (!at) break
    print substr(s, 1, at) " &"
    s = indent "  " substr(s, at + 2)
  }
  print s
}

function scalar(type) {
  if (type == "int32_t" || type == "uint32_t" || type == "insitu_status" || type == "int") return "integer(c_int32_t)"
  if (type == "int64_t" || type == "uint64_t") return "integer(c_int64_t)"
  if (type == "uint8_t") return "integer(c_int8_t)"
  if (type == "double") return "real(c_double)"
  if (type == "char") return "character(kind=c_char)"
  if (type in struct_of) return "type(" type ")"
  print "tools/bindings/f90.awk: no type for " type > "/dev/stderr"
  exit 1
}

function field(i, k,   type, name) {
  type = field_type[i, k]
  name = field_name[i, k]
  if (field_call[i, k]) return "type(c_funptr) :: " name " = c_null_funptr"
  if (field_stars[i, k]) return "type(c_ptr) :: " name " = c_null_ptr"
  if (name == "api") return "integer(c_int32_t) :: api = INSITU_API"
  if (field_length[i, k]) name = name "(" field_length[i, k] ")"
  if (type in struct_of) return scalar(type) " :: " name
  return scalar(type) " :: " name (type == "char" ? " = c_null_char" : type == "double" ? " = 0" : " = 0")
}

# The declaration of parameter k of call c.
function argument(c, k,   type, name, stars, constant) {
  type = argument_type[c, k]
  name = argument_name[c, k]
  stars = argument_stars[c, k]
  constant = argument_const[c, k]
  if (stars == 0) return scalar(type) ", value :: " name
  if (stars == 2) return constant ? "type(c_ptr), intent(in) :: " name "(*)" : "type(c_ptr), intent(inout) :: " name
  if (type == "void" || type in handle_of || type == "insitu_batch") return "type(c_ptr), value :: " name
  if (type in struct_of) return scalar(type) ", intent(" (constant ? "in" : "inout") "), optional :: " name
  if (type == "char") return scalar(type) ", intent(" (constant ? "in" : "inout") "), optional :: " name "(*)"
  return scalar(type) ", intent(" (constant ? "in" : "inout") ") :: " name (constant ? "(*)" : "")
}

function interface(c,   k, list, result) {
  list = ""
  for (k = 1; k <= n_arguments[c]; k++) list = list (k > 1 ? ", " : "") argument_name[c, k]
  result = call_stars[c] ? "type(c_ptr)" : call_type[c] == "void" ? "" : scalar(call_type[c])
  wrap("    " (result == "" ? "subroutine " : "function ") call_name[c] "(" list ")" \
    (result == "" ? "" : " result(returned)") " bind(C, name=\"" call_name[c] "\")", "    ")
  say("      import")
  for (k = 1; k <= n_arguments[c]; k++) say("      " argument(c, k))
  if (result != "") say("      " result " :: returned")
  say("    end " (result == "" ? "subroutine" : "function"))
}

# Structs that others hold come first.
function structure(i,   k) {
  if (i in written) return
  written[i] = 1
  for (k = 1; k <= n_fields[i]; k++)
    if (!field_stars[i, k] && !field_call[i, k] && field_type[i, k] in struct_of) structure(struct_of[field_type[i, k]])
  say("  type, bind(C) :: " struct_name[i])
  for (k = 1; k <= n_fields[i]; k++) say("    " field(i, k))
  say("  end type")
  say("")
}

# The procedure that makes a pointer array of `rank` dimensions, of elements of one kind.
function view(kind, type, codes, rank,   colons, j) {
  colons = ":"
  for (j = 2; j <= rank; j++) colons = colons ",:"
  say("  subroutine insitu_view_" kind "_" rank "(array, view, status)")
  say("    type(insitu_array), intent(in) :: array")
  say("    " type ", pointer, intent(out) :: view(" colons ")")
  say("    integer(c_int32_t), intent(out) :: status")
  say("    integer(c_int64_t) :: lengths(" rank ")")
  say("    nullify(view)")
  wrap("    call insitu_view_shape(array, [" codes "], lengths, status)", "    ")
  say("    if (status == INSITU_OK) call c_f_pointer(array%data, view, lengths)")
  say("  end subroutine")
  say("")
}

END {
  if (failed) exit 1
  say("! Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.")
  say("!")
  say("! insitubatch.h for Fortran 2018 (gfortran 9 or later). Types, constants and functions have the names that")
  say("! they have in C. Handles and batches are type(c_ptr); a desc has its api set, and all else zero. A text ends")
  say("! with c_null_char: insitu_loader_open_json('{...}' // c_null_char, loader=loader, err=err). What C takes as")
  say("! NULL, such as err, may be left out. For the arrays of a batch, without a copy:")
  say("!")
  say("!   call insitu_batch_view(batch, info)              type(insitu_batch), pointer: rows, epoch, after...")
  say("!   call insitu_view(batch, 'x', x, status)          real(c_float), pointer :: x(:,:,:): the first axis of C,")
  say("!                                                    rows, is the last one of Fortran; or integers, doubles")
  say("!   print *, insitu_message(err)                     the text of an error")
  say("module insitubatch")
  say("  use, intrinsic :: iso_c_binding")
  say("  implicit none")
  say("  public")
  say("")
  for (i = 1; i <= n_constants; i++) say("  integer(c_int32_t), parameter :: " constant_name[i] " = " constant_value[i])
  say("")
  for (i = 1; i <= n_structs; i++) structure(i)
  say("  interface")
  for (c = 1; c <= n_calls; c++) if (call_name[c] != "") interface(c)
  say("  end interface")
  say("")
  n_kinds = split("f32 f64 i8 i16 i32 i64", kinds, " ")
  split("real(c_float)|real(c_double)|integer(c_int8_t)|integer(c_int16_t)|integer(c_int32_t)|integer(c_int64_t)", types, "|")
  split("INSITU_F32|INSITU_F64|INSITU_I8, INSITU_U8, INSITU_BOOL|INSITU_I16, INSITU_U16, INSITU_F16, INSITU_BF16|" \
    "INSITU_I32, INSITU_U32|INSITU_I64, INSITU_U64", codes, "|")
  most = 7
  say("  ! Unsigned integers, float16 and bfloat16 are shown as the signed integers of their size.")
  say("  interface insitu_view")
  for (i = 1; i <= n_kinds; i++) {
    list = ""
    for (r = 1; r <= most; r++) list = list (r > 1 ? ", " : "") "insitu_view_" kinds[i] "_" r
    wrap("    module procedure " list, "    ")
    list = ""
    for (r = 1; r <= most; r++) list = list (r > 1 ? ", " : "") "insitu_named_" kinds[i] "_" r
    wrap("    module procedure " list, "    ")
  }
  say("  end interface")
  say("")
  say("contains")
  say("")
  while ((getline line < "tools/bindings/head.f90") > 0) say(line)
  for (i = 1; i <= n_kinds; i++)
    for (r = 1; r <= most; r++) {
      view(kinds[i], types[i], codes[i], r)
      colons = ":"
      for (j = 2; j <= r; j++) colons = colons ",:"
      say("  subroutine insitu_named_" kinds[i] "_" r "(batch, name, view, status)")
      say("    type(c_ptr), intent(in) :: batch")
      say("    character(*), intent(in) :: name")
      say("    " types[i] ", pointer, intent(out) :: view(" colons ")")
      say("    integer(c_int32_t), intent(out) :: status")
      say("    type(insitu_array), pointer :: array")
      say("    nullify(view)")
      say("    call c_f_pointer(insitu_batch_find(batch, name // c_null_char), array)")
      say("    status = INSITU_E_NOTFOUND")
      say("    if (associated(array)) call insitu_view(array, view, status)")
      say("  end subroutine")
      say("")
    }
  say("end module insitubatch")
}
