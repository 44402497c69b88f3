# A C program that prints the size of each struct and the offset of each field, as the compiler has them.
END {
  if (failed) exit 1
  print "#include \"insitubatch.h\"\n#include <stddef.h>\n#include <stdio.h>\nint main(void) {"
  for (i = 1; i <= n_structs; i++) {
    s = struct_name[i]
    print "  printf(\"" s " %zu\\n\", sizeof(" s "));"
    for (k = 1; k <= n_fields[i]; k++)
      print "  printf(\"" s "." field_name[i, k] " %zu\\n\", offsetof(" s ", " field_name[i, k] "));"
  }
  for (i = 1; i <= n_constants; i++) print "  printf(\"" constant_name[i] " %d\\n\", (int)" constant_name[i] ");"
  print "  return 0;\n}"
}
