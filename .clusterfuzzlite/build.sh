#!/usr/bin/env bash
# Builds every native fuzz target of the main module, in whose directory it starts, with libFuzzer, as
# $OUT/PACKAGE_TARGET, and its seeds as $OUT/PACKAGE_TARGET_seed_corpus.zip. Files that targets take
# seeds from are in $OUT/source. There is no list of targets to keep.
#
# The tools of the OSS-Fuzz image replace the package "testing" of a target by one of their own, with
# which other tests of the package do not compile. Here the tests of a package become an archive for
# C as "go test" compiles them; internal/testkit/libfuzzer lets libFuzzer drive them.
# The image sets CXX, CXXFLAGS, LIB_FUZZING_ENGINE and OUT; "make fuzz-libfuzzer" does so elsewhere.
set -euo pipefail

export CGO_ENABLED=1
module=$(go list -m)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# archive compiles the tests of a package, with a file that registers its targets.
archive() {
	local package=$1 file=$2 line
	{
		grep -m1 '^package ' "$file"
		echo "import \"$module/internal/testkit/libfuzzer\""
		echo "func init() {"
		while read -r line; do echo "libfuzzer.Register(\"$line\", $line)"; done
		echo "}"
	} >"$work/register.go"
	echo "{\"Replace\": {\"$PWD/$package/register_libfuzzer_test.go\": \"$work/register.go\"}}" >"$work/overlay.json"
	go test -c -vet=off -tags libfuzzer -gcflags="$module/...=-d=libfuzzer" -buildmode=c-archive \
		-overlay "$work/overlay.json" -o "$work/tests.a" "./$package"
}

# link makes the program of a target, which writes its own seeds.
link() {
	local package=$1 target=$2 name=$3
	echo "extern \"C\" { extern const char fuzz_package[] = \"$package\", fuzz_target[] = \"$target\"; }" >"$work/target.cc"
	# The image passes several flags in one variable.
	# shellcheck disable=SC2086
	$CXX $CXXFLAGS $LIB_FUZZING_ENGINE "$work/target.cc" "$work/tests.a" -o "$OUT/$name"
	mkdir "$work/$name"
	FUZZ_SEEDS=$work/$name "$OUT/$name"
	[[ -z $(ls "$work/$name") ]] || (cd "$work/$name" && zip -q -r "$OUT/${name}_seed_corpus.zip" .)
}

scripts/fuzz-targets >"$work/targets"
cut -d' ' -f1 "$work/targets" | sed "s|^|$OUT/source/|" | xargs mkdir -p
find internal cmd golden deploy docs demo -type f ! -name '*.go' ! -path 'docs/images/*' -print0 |
	xargs -0 cp --parents --target-directory "$OUT/source"

cut -d' ' -f1 "$work/targets" | uniq | while read -r package; do
	file=$(grep -m1 "^$package " "$work/targets" | cut -d' ' -f2)
	grep "^$package " "$work/targets" | cut -d' ' -f3 | archive "$package" "$file"
	grep "^$package " "$work/targets" | while read -r _ _ target name; do
		echo "$name"
		link "$package" "$target" "$name" </dev/null
	done
done
