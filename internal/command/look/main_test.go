package look

import (
	"os"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/commandline"
)

var program = commandline.Of(StatusCommand, DescribeCommand, ExplainCommand, TraceCommand, TestCommand, TopCommand, ObserveCommand)

// shop is a Service of each fate, with most of what a Service can have.
const shop = "../../../cmd/nftproxy/testdata/shop.yaml"

// golden compares a text with a file, or writes it with UPDATE=1.
func golden(t *testing.T, file, got string) {
	t.Helper()
	if os.Getenv("UPDATE") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs (UPDATE=1 rewrites it):\n%s", file, got)
	}
}
