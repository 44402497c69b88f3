# Rust: constants, #[repr(C)] structs, and the functions as extern "C".

function say(s) { print s }

function word(name,   reserved) {
  reserved = " as box break const continue dyn else enum extern fn for if impl in let loop match mod move mut pub ref return " \
    "static struct trait type unsafe use where while yield "
  return index(reserved, " " name " ") ? "r#" name : name
}

function scalar(type) {
  if (type == "insitu_status" || type == "int32_t" || type == "int") return "i32"
  if (type == "uint32_t") return "u32"
  if (type == "int64_t") return "i64"
  if (type == "uint64_t") return "u64"
  if (type == "uint8_t") return "u8"
  if (type == "double") return "f64"
  if (type == "char") return "c_char"
  if (type == "void") return "c_void"
  if (type in struct_of || type in handle_of) return type
  print "tools/bindings/rs.awk: no type for " type > "/dev/stderr"
  exit 1
}

# A type with its stars. const belongs to what the last star of C points to.
function typed(type, stars, constant,   s) {
  s = scalar(type)
  if (stars) s = (constant ? "*const " : "*mut ") s
  for (stars--; stars > 0; stars--) s = (constant ? "*const " : "*mut ") s
  return s
}

function parameters(c, named,   k, s) {
  s = ""
  for (k = 1; k <= n_arguments[c]; k++)
    s = s (k > 1 ? ", " : "") (named ? word(argument_name[c, k]) ": " : "") \
      typed(argument_type[c, k], argument_stars[c, k], argument_const[c, k])
  return s
}

function result(c) {
  if (call_type[c] == "void" && !call_stars[c]) return ""
  return " -> " typed(call_type[c], call_stars[c], call_const[c])
}

function field(i, k,   type, c) {
  c = field_call[i, k]
  if (c) type = "Option<unsafe extern \"C\" fn(" parameters(c, 0) ")" result(c) ">"
  else type = typed(field_type[i, k], field_stars[i, k], field_const[i, k])
  if (field_length[i, k]) type = "[" type "; " field_length[i, k] "]"
  if (length(type) < 90) say("    pub " word(field_name[i, k]) ": " type ",")
  else {
    gsub(/, /, ",\n        ", type)
    say("    pub " word(field_name[i, k]) ": " type ",")
  }
}

END {
  if (failed) exit 1
  say("// Written by tools/make_bindings from part A of insitubatch.h: do not edit. What each thing means is told there.")
  say("//")
  say("// insitubatch.h for Rust 1.63 or later: mod insitubatch; and link the library (insitubatch) or an object of the")
  say("// implementation. A desc begins as Default: all zero, but api.")
  say("#![allow(non_camel_case_types, dead_code)]")
  say("use std::ffi::{c_void, CStr};")
  say("use std::os::raw::c_char;")
  say("")
  for (i = 1; i <= n_constants; i++) {
    type = constant_name[i] == "INSITU_API" ? "u32" : "i32"
    say("pub const " constant_name[i] ": " type " = " constant_value[i] ";")
  }
  for (i = 1; i <= n_handles; i++) {
    say("")
    say("#[repr(C)]")
    say("pub struct " handle_name[i] " {")
    say("    _private: [u8; 0],")
    say("}")
  }
  for (i = 1; i <= n_structs; i++) {
    say("")
    say("#[repr(C)]")
    say("#[derive(Clone, Copy)]")
    say("pub struct " struct_name[i] " {")
    api = 0
    for (k = 1; k <= n_fields[i]; k++) {
      field(i, k)
      api = api || field_name[i, k] == "api"
    }
    say("}")
    say("impl Default for " struct_name[i] " {")
    say("    fn default() -> Self {")
    say("        // Every field may be zero: numbers, addresses, functions that are optional.")
    if (api) {
      say("        let zero: Self = unsafe { std::mem::zeroed() };")
      say("        Self { api: INSITU_API, ..zero }")
    } else say("        unsafe { std::mem::zeroed() }")
    say("    }")
    say("}")
  }
  say("")
  say("extern \"C\" {")
  for (c = 1; c <= n_calls; c++)
    if (call_name[c] != "") {
      say("    pub fn " call_name[c] "(")
      for (k = 1; k <= n_arguments[c]; k++)
        say("        " word(argument_name[c, k]) ": " typed(argument_type[c, k], argument_stars[c, k], argument_const[c, k]) ",")
      say("    )" result(c) ";")
    }
  say("}")
  say("")
  say("impl insitu_error {")
  say("    /// The name of the status, and the message.")
  say("    pub fn text(&self) -> String {")
  say("        let name = unsafe { CStr::from_ptr(insitu_status_name(self.status)) };")
  say("        let bytes: Vec<u8> = self.message.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();")
  say("        format!(\"{}: {}\", name.to_string_lossy(), String::from_utf8_lossy(&bytes))")
  say("    }")
  say("}")
}
