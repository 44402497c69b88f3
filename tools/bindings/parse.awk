# Reads part A of insitubatch.h into tables, for the other files of this folder, each of which writes one language in its END:
#   constants  n_constants, constant_name[i], constant_value[i]
#   structs    n_structs, struct_name[i], n_fields[i], and of field k: field_name[i, k], _type (const and * left out), _stars (how
#              many *), _length (of an array, else 0), _const (what it points to), _call (a pointer to a function: its parameters'
#              place among the calls, else 0)
#   handles    n_handles, handle_name[i]: structs that nobody sees
#   functions  n_calls, call_name[i] ("" for a field's), call_type, call_stars, call_const; n_arguments[i], and of argument k:
#              argument_name[i, k], _type, _stars, _const
# What it does not understand ends it with a message: nothing is left out in silence.

function bad(text) {
  print "tools/bindings/parse.awk: cannot read: " text > "/dev/stderr"
  failed = 1
  exit 1
}

function trim(s) {
  gsub(/^[ \t\n]+|[ \t\n]+$/, "", s)
  gsub(/[ \t\n]+/, " ", s)
  return s
}

# "const char *const *name[3]" to read_type, read_stars, read_const, read_name, read_length
function read_declarator(s,   bracket) {
  s = trim(s)
  read_const = s ~ /^const /
  read_length = 0
  bracket = index(s, "[")
  if (bracket) {
    read_length = substr(s, bracket + 1)
    sub(/\].*/, "", read_length)
    if (read_length in value_of) read_length = value_of[read_length]
    if (read_length !~ /^[0-9]+$/) bad(s)
    s = substr(s, 1, bracket - 1)
  }
  gsub(/(^|[ *])const /, "&\001", s)
  gsub(/const \001/, "", s)
  gsub(/\001/, "", s)
  read_stars = gsub(/\*/, " ", s)
  s = trim(s)
  sub(/^unsigned char /, "uint8_t ", s)
  sub(/^struct /, "", s)
  if (s !~ /^[A-Za-z_0-9]+ [A-Za-z_0-9]+$/) bad(s)
  read_type = substr(s, 1, index(s, " ") - 1)
  read_name = substr(s, index(s, " ") + 1)
}

# The parameters of call number c.
function read_arguments(s, c,   depth, i, ch, part) {
  n_arguments[c] = 0
  s = trim(s)
  if (s == "void" || s == "") return
  s = s ","
  for (i = 1; i <= length(s); i++) {
    ch = substr(s, i, 1)
    if (ch == "(") bad(s)
    if (ch != ",") { part = part ch; continue }
    read_declarator(part)
    n_arguments[c]++
    argument_name[c, n_arguments[c]] = read_name
    argument_type[c, n_arguments[c]] = read_type
    argument_stars[c, n_arguments[c]] = read_stars
    argument_const[c, n_arguments[c]] = read_const
    part = ""
  }
}

# "insitu_status (*decode)(void *user, ...)", or "insitu_status insitu_read(...)": a new call; returns its number
function read_call(s, field,   open, head) {
  n_calls++
  if (field) {
    open = index(s, "(*")
    head = trim(substr(s, 1, open - 1)) " x"
    s = substr(s, open + 2)
    field_called = substr(s, 1, index(s, ")") - 1)
    s = substr(s, index(s, ")") + 1)
    call_name[n_calls] = ""
  } else {
    open = index(s, "(")
    head = substr(s, 1, open - 1)
    s = substr(s, open)
  }
  read_declarator(head)
  if (!field) call_name[n_calls] = read_name
  call_type[n_calls] = read_type
  call_stars[n_calls] = read_stars
  call_const[n_calls] = read_const
  s = trim(s)
  if (s !~ /^\(.*\)$/) bad(s)
  read_arguments(substr(s, 2, length(s) - 2), n_calls)
  return n_calls
}

function add_field(i, call) {
  n_fields[i]++
  field_name[i, n_fields[i]] = call ? field_called : read_name
  field_type[i, n_fields[i]] = read_type
  field_stars[i, n_fields[i]] = read_stars
  field_const[i, n_fields[i]] = read_const
  field_length[i, n_fields[i]] = call ? 0 : read_length
  field_call[i, n_fields[i]] = call
}

# The declarations between a struct's braces.
function read_struct(name, body,   n, part, k, names, m, j, base, call) {
  n_structs++
  struct_name[n_structs] = name
  struct_of[name] = n_structs
  n_fields[n_structs] = 0
  n = split(body, part, ";")
  for (k = 1; k < n; k++) {
    if (index(part[k], "(*")) {
      call = read_call(trim(part[k]), 1)
      add_field(n_structs, call)
      continue
    }
    m = split(part[k], names, ",")
    read_declarator(names[1])
    add_field(n_structs, 0)
    base = (read_const ? "const " : "") read_type " "
    for (j = 2; j <= m; j++) {
      read_declarator(base names[j])
      add_field(n_structs, 0)
    }
  }
}

function read_enum(body,   n, part, k, name, value, last) {
  last = -1
  n = split(body, part, ",")
  for (k = 1; k <= n; k++) {
    part[k] = trim(part[k])
    if (part[k] == "") continue
    name = part[k]
    sub(/ *=.*/, "", name)
    value = last + 1
    if (index(part[k], "=")) {
      value = part[k]
      sub(/.*= */, "", value)
      if (value ~ /^0x/) value = hexadecimal(value)
      if (value in value_of) value = value_of[value]
    }
    if (value !~ /^-?[0-9]+$/) bad(part[k])
    n_constants++
    constant_name[n_constants] = name
    constant_value[n_constants] = value_of[name] = last = value + 0
  }
}

function hexadecimal(s,   v, i) {
  v = 0
  s = tolower(substr(s, 3))
  for (i = 1; i <= length(s); i++) v = 16 * v + index("0123456789abcdef", substr(s, i, 1)) - 1
  return v
}

# One declaration, without comments.
function read_statement(s,   name, body) {
  s = trim(s)
  if (s == "") return
  body = s
  sub(/^[^{]*\{/, "", body)
  sub(/\}[^}]*$/, "", body)
  if (s ~ /^enum \{/) read_enum(body)
  else if (s ~ /^(typedef )?struct [a-z_0-9]+ \{/) {
    name = s
    sub(/^(typedef )?struct /, "", name)
    sub(/ .*/, "", name)
    read_struct(name, body)
  } else if (s ~ /^typedef struct [a-z_0-9]+ [a-z_0-9]+$/) {
    sub(/.* /, "", s)
    declared[++n_declared] = s
  } else if (s ~ /^INSITU_DEF /) read_call(substr(s, 12), 0)
  else if (s != "typedef int32_t insitu_status") bad(s)
}

/^\/\* ==== part A: declarations ==== \*\/$/ { inside = 1; next }
/^#endif \/\* INSITUBATCH_H \*\/$/ { inside = 0 }
!inside || $0 ~ /^#/ { if (inside && $0 ~ /^#ifdef __cplusplus/) foreign = 1; if ($0 ~ /^#endif/) foreign = 0; next }
foreign { next }
{
  line = $0
  while (line != "") {
    if (commented) {
      at = index(line, "*/")
      if (!at) { line = ""; break }
      line = substr(line, at + 2)
      commented = 0
      continue
    }
    at = index(line, "/*")
    code = at ? substr(line, 1, at - 1) : line
    line = at ? substr(line, at + 2) : ""
    commented = at > 0
    for (i = 1; i <= length(code); i++) {
      ch = substr(code, i, 1)
      if (ch == "{") braces++
      if (ch == "}") braces--
      if (ch == ";" && !braces) { read_statement(text); text = "" } else text = text ch
    }
  }
  text = text "\n"
}

END {
  if (failed) exit 1
  if (!n_calls || !n_structs || !n_constants || trim(text) != "") bad("part A, which is not what it was: " trim(text))
  for (i = 1; i <= n_declared; i++) {
    if (declared[i] in struct_of) continue
    handle_name[++n_handles] = declared[i]
    handle_of[declared[i]] = 1
  }
}
