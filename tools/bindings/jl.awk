# Julia: constants, structs, and the functions by ccall.

function say(s) { print s }

function word(name,   reserved) {
  reserved = " begin break catch const continue do else elseif end export false finally for function global if import let " \
    "local macro module quote return struct true try using while "
  return index(reserved, " " name " ") ? name "_" : name
}

function scalar(type) {
  if (type == "insitu_status" || type == "int32_t" || type == "int") return "Int32"
  if (type == "uint32_t") return "UInt32"
  if (type == "int64_t") return "Int64"
  if (type == "uint64_t") return "UInt64"
  if (type == "uint8_t" || type == "char") return "UInt8"
  if (type == "double") return "Float64"
  if (type in struct_of) return type
  print "tools/bindings/jl.awk: no type for " type > "/dev/stderr"
  exit 1
}

# In a struct: addresses of other structs are Ptr{Cvoid}, so that their order does not matter.
function pointer(type, stars) {
  if (stars == 2) return "Ptr{Ptr{Cvoid}}"
  if (type == "void" || type in struct_of || type in handle_of) return "Ptr{Cvoid}"
  return "Ptr{" scalar(type) "}"
}

function parameter(c, k,   type, stars) {
  type = argument_type[c, k]
  stars = argument_stars[c, k]
  if (!stars) return scalar(type)
  if (type == "char" && stars == 1) return argument_const[c, k] ? "Cstring" : "Ptr{UInt8}"
  if (type in struct_of && stars == 1 && type != "insitu_batch") return "Ptr{" type "}"
  return pointer(type, stars)
}

function structure(i,   k, type) {
  if (i in written) return
  written[i] = 1
  for (k = 1; k <= n_fields[i]; k++)
    if (!field_stars[i, k] && !field_call[i, k] && field_type[i, k] in struct_of) structure(struct_of[field_type[i, k]])
  say("")
  say("struct " struct_name[i])
  for (k = 1; k <= n_fields[i]; k++) {
    if (field_call[i, k]) type = "Ptr{Cvoid}"
    else type = field_stars[i, k] ? pointer(field_type[i, k], field_stars[i, k]) : scalar(field_type[i, k])
    if (field_length[i, k]) type = "NTuple{" field_length[i, k] ", " type "}"
    say("    " word(field_name[i, k]) "::" type)
  }
  say("end")
}

END {
  if (failed) exit 1
  say("# Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.")
  say("#")
  say("# insitubatch.h for Julia: include(\"insitubatch.jl\"); the shared library is what INSITUBATCH_LIBRARY of the")
  say("# environment names, else libinsitubatch. Configurations are best given as JSON: InsituBatch.insitu_loader_open_json.")
  say("module InsituBatch")
  say("")
  say("const library = get(ENV, \"INSITUBATCH_LIBRARY\", \"libinsitubatch\")")
  say("")
  for (i = 1; i <= n_constants; i++) say("const " constant_name[i] " = Int32(" constant_value[i] ")")
  for (i = 1; i <= n_structs; i++) structure(i)
  for (c = 1; c <= n_calls; c++)
    if (call_name[c] != "") {
      list = types = values = ""
      for (k = 1; k <= n_arguments[c]; k++) {
        list = list (k > 1 ? ", " : "") word(argument_name[c, k])
        types = types parameter(c, k) (n_arguments[c] == 1 || k < n_arguments[c] ? ", " : "")
        values = values ", " word(argument_name[c, k])
      }
      sub(/, $/, n_arguments[c] == 1 ? "," : "", types)
      result = call_stars[c] ? (call_type[c] == "char" ? "Cstring" : "Ptr{" scalar(call_type[c]) "}") \
        : call_type[c] == "void" ? "Cvoid" : scalar(call_type[c])
      say("")
      say("function " call_name[c] "(" list ")")
      say("    ccall((:" call_name[c] ", library), " result ",")
      if (length(types) > 90) gsub(/, /, ",\n            ", types)
      say("        (" types ")" (length(types values) > 110 ? ",\n        " substr(values, 3) : values) ")")
      say("end")
    }
  say("")
  say("# The name of an error's status, and its message.")
  say("function text(err::insitu_error)")
  say("    bytes = collect(Iterators.takewhile(!=(0x00), err.message))")
  say("    unsafe_string(insitu_status_name(err.status)) * \": \" * String(bytes)")
  say("end")
  say("")
  say("# A value of a struct with all bytes zero; of a desc, with its api set.")
  say("function zeroed(T)")
  say("    r = Ref{T}()")
  say("    GC.@preserve r begin")
  say("        p = Base.unsafe_convert(Ptr{T}, r)")
  say("        unsafe_store!.(Ptr{UInt8}(p) .+ (0:sizeof(T)-1), 0x00)")
  say("        fieldname(T, 1) == :api && unsafe_store!(Ptr{UInt32}(p), UInt32(INSITU_API))")
  say("    end")
  say("    r")
  say("end")
  say("")
  say("end")
}
