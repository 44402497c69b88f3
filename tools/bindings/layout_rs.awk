# The same in Rust.
function word(name) { return name ~ /^(as|type|ref|in|match|move|where|use)$/ ? "r#" name : name }
END {
  if (failed) exit 1
  print "#[path = \"insitubatch.rs\"]\nmod insitubatch;\nuse insitubatch::*;\nuse std::mem::{offset_of, size_of};\nfn main() {"
  for (i = 1; i <= n_structs; i++) {
    s = struct_name[i]
    print "    println!(\"" s " {}\", size_of::<" s ">());"
    for (k = 1; k <= n_fields[i]; k++)
      print "    println!(\"" s "." field_name[i, k] " {}\", offset_of!(" s ", " word(field_name[i, k]) "));"
  }
  for (i = 1; i <= n_constants; i++) print "    println!(\"" constant_name[i] " {}\", " constant_name[i] ");"
  print "}"
}
