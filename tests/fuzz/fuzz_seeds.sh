#!/bin/sh
# Copies what the repository has to FOLDER as seeds of the fuzz targets: FOLDER/fuzz_codec, fuzz_zarr, fuzz_shard and fuzz_zip.
#   tests/fuzz/fuzz_seeds.sh FOLDER
set -eu
data=$(cd "$(dirname "$0")/../data" && pwd)
mkdir -p "$1/fuzz_codec" "$1/fuzz_zarr" "$1/fuzz_shard" "$1/fuzz_zip"

octal() { printf '%03o' "$1"; }

# codec-cname-shuffle-typesize-blocksize-bytes.bin; the target wants the codec, a mode and the decoded size in front.
for path in "$data"/codec/*.bin; do
  name=$(basename "$path" .bin)
  bytes=${name##*-} kind='' mode=303 # octal
  case $name in
    blosc-*) kind=0 ;;
    zstd-*) kind=1 ;;
    lz4-*) kind=2 ;;
    crc32c-*) kind=3 ;;
    gzip-*) kind=4 ;;
    zlib-*) kind=5 ;;
    bz2-*) kind=6 ;;
    crc32-*) kind=7 ;;
    adler32-*) kind=8 ;;
    fletcher32-*) kind=9 ;;
  esac
  case $name in
    crc32-end-* | adler32-end-*) ;;
    crc32-* | adler32-* | crc32c-start-*) mode=343 ;; # the checksum stands first
  esac
  if [ -z "$kind" ] || [ "$bytes" -ge 65536 ]; then continue; fi
  {
    # shellcheck disable=SC2059  # the format is four bytes as octal escapes
    printf "\\$(octal "$kind")\\$mode\\$(octal $((bytes % 256)))\\$(octal $((bytes / 256)))"
    cat "$path"
  } >"$1/fuzz_codec/$name"
done

find "$data/stores" '(' -name '.z*' -o -name zarr.json ')' -type f | while read -r path; do
  cp "$path" "$1/fuzz_zarr/$(echo "${path#"$data/stores/"}" | tr / _)"
done

# The metadata, a NUL, and the first of the array's objects.
for array in "$data"/stores/sharded*/*/; do
  object=$(find "$array" -type f ! -name zarr.json | sort | head -n 1)
  [ -n "$object" ] || continue
  store=$(basename "$(dirname "$array")")
  { cat "$array/zarr.json" && printf '\0' && cat "$object"; } >"$1/fuzz_shard/${store}_$(basename "$array")"
done

# A byte that chooses how it is read, and the file.
for path in "$data"/stores/*.zip; do
  { printf '\370' && cat "$path"; } >"$1/fuzz_zip/$(basename "$path")"
done
