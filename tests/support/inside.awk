# Tests that call private functions link one object of the whole header, in place of a copy of it each. This writes both halves:
#   awk -v mode=object -f inside.awk insitubatch.h >FILE.c      the header, its functions outside of the file, and weak
#   awk -v mode=header -f inside.awk insitubatch.h [TEST.c...]  the header, of functions only the declarations
# A test may define macros before it includes the header: INSITU_REALLOC, mmap, INSITU__HTTP_PAUSE. What functions of the header
# such a macro changes, the test goes on to include whole: they are compiled with it, and take the place of the object's, which are
# weak. A macro that decides over types, or over what is compiled, cannot be followed so, and ends in an error: such a test is
# compiled with a header of its own (ALONE_TESTS of the Makefile).
#
# It reads the header by its layout, which lint holds fast: what is declared starts in the first column, and a function ends with
# the first '}' there. Lines keep their numbers.

function fail(why) {
  print "inside.awk: " why >"/dev/stderr"
  failed = 1
  exit 1
}

# The macros that a test defines before it includes the header; those that name a way of compiling are no hooks.
FNR == 1 {
  file++
  searching = file > 1
  implements = 0
}
file > 1 {
  if (/^# *define INSITU_IMPLEMENTATION/) implements = 1
  if (implements && /^# *include "insitubatch.h"/) searching = 0
  if (searching && /^# *include ".*"/) { # a support header, which may define some
    split($0, part, "\"")
    path = folder part[2]
    if ((getline line <path) >= 0) {
      do if (line ~ /^# *define [A-Za-z_]/) hook(line); while ((getline line <path) > 0)
      close(path)
    }
  }
  if (searching && /^# *define [A-Za-z_]/) hook($0)
  next
}

function hook(line) {
  sub(/^# *define +/, "", line)
  sub(/[^A-Za-z_0-9].*/, "", line)
  if (line !~ /^(INSITU_IMPLEMENTATION|INSITU_STATIC|INSITU_WITH_CUDA|_GNU_SOURCE)$/ && line !~ /_H$/) hooks[line] = 1
}

# ---- the header, in items: kind, name, and text

function item(k) {
  kind[++n] = k
  text[n] = $0
  name[n] = ""
}

!inside {
  item("copy")
  if (/^\/\* >>platform -/) inside = 1
  next
}

in_function {
  text[n] = text[n] "\n" $0
  if (/^}/) in_function = 0
  next
}

in_signature {
  text[n] = text[n] "\n" $0
  signature()
  next
}

in_table {
  text[n] = text[n] "\n" $0
  table()
  next
}

in_macro {
  text[n] = text[n] "\n" $0
  in_macro = /\\$/
  next
}

/^# *define / {
  item("macro")
  name[n] = $0
  sub(/^# *define +/, "", name[n])
  sub(/[^A-Za-z_0-9].*/, "", name[n])
  in_macro = /\\$/
  next
}

# A function: its first line has a parenthesis behind its name, and no value. Those that a macro makes stay where they are made.
/^(static|INSITU_DEF|__attribute__|INSITU__[A-Z_]* static)/ && /\(/ && !/=/ {
  item(/(^|[ (,])(always_)?inline[ ),]/ ? "inline" : "function")
  in_signature = 1
  signature()
  next
}

# Tables, which tests may have copies of
/^static const/ {
  item("table")
  in_table = 1
  table()
  next
}

# State, of which there is one: in the object
/^static [^(]*=[^{]*;$/ {
  item("state")
  next
}

/^INSITU__[A-Z0-9_]+\(/ { # a macro that makes functions
  item("made")
  next
}

{ item("copy") }

# After each line of a table: it ends with a semicolon outside of all braces.
function table(  s) {
  s = $0
  gsub(/"([^"\\]|\\.)*"|'.'/, "", s)
  sub(/ *\/\*.*/, "", s)
  depth += gsub(/{/, "", s) - gsub(/}/, "", s)
  if (s ~ /;$/ && !depth) in_table = 0
}

# After each line of a signature: whether it is whole, and what it is of
function signature(  s) {
  if (!/[{;}] *(\/\*.*)?$/) return
  in_signature = 0
  in_function = !/} *(\/\*.*)?$/ && !/;$/
  s = text[n]
  if (s ~ /;$/) kind[n] = "copy"
  while (sub(/__attribute__\(\([^()]*(\([^()]*\)[^()]*)*\)\)/, "", s));
  if (s ~ /^INSITU_DEF/) kind[n] = "public"
  sub(/\(.*/, "", s)
  sub(/.*[ *]/, "", s)
  name[n] = s
}

# ---- what hooks change

function any_of(set,  s, all) {
  all = ""
  for (s in set) all = all (all == "" ? "" : "|") s
  return "(^|[^A-Za-z0-9_])(" all ")($|[^A-Za-z0-9_])"
}

function close_over(  i, more, pattern, one, many) {
  for (one in hooks) many = 1
  if (!many) return
  do {
    more = 0
    pattern = any_of(hooks)
    for (i = 1; i <= n; i++) {
      if (changed[i] || kind[i] == "copy" && !(text[i] ~ /^#/)) continue
      if (kind[i] == "macro" && (name[i] in hooks)) continue # what the test defines instead
      if (text[i] !~ pattern) continue
      changed[i] = 1
      if (kind[i] == "macro" || kind[i] == "inline" || kind[i] == "table") {
        if (!(name[i] in hooks) && name[i] != "") {
          hooks[name[i]] = 1
          more = 1
        }
      }
    }
  } while (more)
}

# Whether a line asks only for what is not defined: what a test defines is there in place of a default.
function guards(line) {
  while (sub(/!defined\([A-Z_]+\)( (&&|\|\|) )?/, "", line));
  return line ~ /^#(ifndef|undef) / || line == "#if "
}

# What no function holds: conditions and types
function refuse(  i, one, word) {
  for (one in hooks) {
    if (one !~ /^INSITU/) continue
    word = "(^|[^A-Za-z0-9_])" one "($|[^A-Za-z0-9_])"
    for (i = 1; i <= n; i++)
      if (kind[i] == "copy" && text[i] ~ word && text[i] !~ /^ ?[/*]/ && !guards(text[i])) fail(one " changes: " text[i])
  }
}

function breaks(s) {
  return gsub(/\n/, "", s)
}

function declaration(s) {
  sub(/[ \t]*{.*/, "", s)
  while (sub(/__attribute__\(\([^()]*(\([^()]*\)[^()]*)*\)\) ?/, "", s));
  sub(/^INSITU__[A-Z_]* static /, "static ", s)
  sub(/^static /, "", s)
  return s ";"
}

function outside(s) { # a definition, seen from outside of its file
  sub(/static /, "", s)
  return s
}

END {
  if (failed) exit 1
  if (!inside || in_function || in_signature) fail("the header is not laid out as expected")
  if (mode == "header") {
    close_over()
    refuse()
  }
  print "#line 1 \"insitubatch.h\""
  for (i = 1; i <= n; i++) {
    if (mode == "object") {
      if (kind[i] == "function" || kind[i] == "public" || kind[i] == "state") print "__attribute__((weak)) " outside(text[i])
      else print text[i]
    } else if (kind[i] == "function" || kind[i] == "public") {
      if (changed[i]) print outside(text[i])
      else {
        s = kind[i] == "function" ? declaration(text[i]) : ""
        print s
        for (lines = breaks(text[i]) - breaks(s); lines > 0; lines--) print ""
      }
    } else if (kind[i] == "state") {
      sub(/^static/, "extern", text[i])
      sub(/ *=.*/, ";", text[i])
      print text[i]
    } else if (kind[i] == "made") {
      print ""
    } else print text[i]
  }
}
