#!/usr/bin/env bash
# Builds every native fuzz target of the main module with the tool of the OSS-Fuzz image, as
# $OUT/PACKAGE_TARGET. There is no list of targets to keep.
# COMPILE names another tool: "COMPILE=scripts/fuzz-compile OUT=DIRECTORY" builds the same
# targets on a machine without that image.
#
# The tool of the image needs the module github.com/AdamKorcz/go-118-fuzz-build of its own commit
# in go.mod, and compiles all test files of a package with the "testing" of that module. It fails
# where one of them uses what that has not: b.Loop, t.Context, testing/synctest.
set -euo pipefail

compile=${COMPILE:-compile_native_go_fuzzer_v2}
module=$(go list -m)
while IFS=: read -r file target; do
	package=$(dirname "$file")
	name=${package#internal/}_$target
	"$compile" "$module/$package" "$target" "${name//\//_}"
done < <(grep -roE --include='*_test.go' '^func Fuzz[A-Za-z0-9_]+' internal cmd | sed 's/:func /:/' | sort)
