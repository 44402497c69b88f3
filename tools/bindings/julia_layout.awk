# Prints what tests/bindings/run compares with C: sizes, offsets and constants of examples/bindings/insitubatch.jl, which it reads
# itself, without the tables of parse.awk. Julia lays a struct out as C does: each field at the next multiple of its alignment, an
# NTuple as an array, a struct inside with the largest alignment of its fields, and the whole padded to its own. And it tells of a
# ccall whose types are not as many as its values.
#   awk -f tools/bindings/julia_layout.awk examples/bindings/insitubatch.jl
function bad(text) {
  print "julia_layout.awk: line " NR ": " text > "/dev/stderr"
  failed = 1
  exit 1
}

function align_up(n, to) { return int((n + to - 1) / to) * to }

# Sets `size` and `alignment` of a type.
function measure(type,   parts, n) {
  if (type ~ /^Ptr\{.+\}$/) size = alignment = 8
  else if (type in plain) size = alignment = plain[type]
  else if (type in size_of) { size = size_of[type]; alignment = alignment_of[type] }
  else if (type ~ /^NTuple\{[0-9]+, .+\}$/) {
    n = type
    sub(/^NTuple\{/, "", n)
    parts = n
    sub(/^[0-9]+, /, "", parts)
    measure(substr(parts, 1, length(parts) - 1))
    size *= n + 0
  } else bad("no type " type)
}

# How many things a list names. Commas in braces are of a type.
function count(list,   depth, n, i, c) {
  if (list ~ /^[ \n]*$/) return 0
  n = 1
  for (i = 1; i <= length(list); i++) {
    c = substr(list, i, 1)
    depth += (c == "{") - (c == "}")
    if (c == "," && !depth && substr(list, i + 1) !~ /^[ \n]*$/) n++
  }
  return n
}

function close_call(   types, values) {
  if (!match(call, /, [A-Za-z0-9]+(\{[A-Za-z_]+\})?, \(/)) bad("no ccall: " call)
  types = substr(call, RSTART + RLENGTH)
  values = substr(types, index(types, ")") + 1)
  types = substr(types, 1, index(types, ")") - 1)
  sub(/\)$/, "", values)
  sub(/^,/, "", values)
  if (count(types) != count(values) || count(values) != count(arguments))
    bad(name ": " count(types) " types, " count(values) " values, " count(arguments) " arguments")
  names[++n_names] = name
  call = ""
}

BEGIN {
  plain["Int32"] = plain["UInt32"] = 4
  plain["Int64"] = plain["UInt64"] = plain["Float64"] = 8
  plain["UInt8"] = 1
}

/^const INSITU_[A-Z0-9_]+ = Int32\(-?[0-9]+\)$/ {
  value = $4
  gsub(/Int32\(|\)/, "", value)
  constants = constants $2 " " value "\n"
}

/^struct / { name = $2; at = widest = 0; fields = ""; inside = 1; next }

inside && /^    [a-z_0-9]+::/ {
  split($0, part, "::")
  field = part[1]
  gsub(/ /, "", field)
  sub(/_$/, "", field) # of a word that Julia keeps for itself
  measure(part[2])
  at = align_up(at, alignment)
  fields = fields name "." field " " at "\n"
  at += size
  if (alignment > widest) widest = alignment
  next
}

inside && /^end$/ {
  size_of[name] = align_up(at, widest)
  alignment_of[name] = widest
  print name " " size_of[name]
  printf "%s", fields
  inside = 0
  next
}

inside { bad("in a struct: " $0) }

/^function insitu_/ {
  name = $2
  sub(/\(.*/, "", name)
  arguments = $0
  sub(/^[^(]*\(/, "", arguments)
  sub(/\)$/, "", arguments)
}

/ccall\(\(:/ { calling = 1 }

calling && /^end$/ { calling = 0; sub(/^.*library\)/, "", call); close_call() }

calling { call = call $0; gsub(/  +/, " ", call) }

END {
  if (failed) exit 1
  printf "%s", constants
  for (i = 1; i <= n_names; i++) print "call " names[i]
}
