#!/usr/bin/env bash
# Builds every native fuzz target of the main module with the tool of the OSS-Fuzz image, as
# $OUT/PACKAGE_TARGET. There is no list of targets to keep.
# COMPILE names another tool: "COMPILE=scripts/fuzz-compile OUT=DIRECTORY" builds the same
# targets on a machine without that image.
set -euo pipefail

compile=${COMPILE:-compile_native_go_fuzzer_v2}
module=$(go list -m)
while IFS=: read -r file target; do
	package=$(dirname "$file")
	name=${package#internal/}_$target
	"$compile" "$module/$package" "$target" "${name//\//_}"
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' internal cmd | sed 's/:func /:/' | sort)
