package apply

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/testkit/hostile"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// FuzzRecord: 13.30. Any record is about the rules that were left, or is not used; and it moves no endpoint of them.
func FuzzRecord(f *testing.F) {
	rules := workload.Sample()
	a := New(newFake(), slog.New(slog.DiscardHandler))
	if _, err := a.Apply(nft.FromNothing(workload.Sample())); err != nil {
		f.Fatal(err)
	}
	left := a.Record(rules)
	if left == nil {
		f.Fatal("no record")
	}
	text, err := json.Marshal(left)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(bytes.Replace(text, []byte(`"Slots":null`), []byte(`"Slots":[{"Frontend":{},"Order":[0]}]`), 1))
	f.Add(bytes.Replace(text, []byte(`"Slots":null`), []byte(`"Slots":[{"Order":[1,1]},{"Order":[4294967295]},{"Order":[]}]`), 1))
	f.Add([]byte(`{"Rules":"","Slots":[{}]}`))
	f.Add([]byte("null"))
	before := workload.Sorted(rules)
	f.Fuzz(func(t *testing.T, text []byte) {
		var r Record
		var err error
		hostile.CheckMemory(t, len(text), 512, func() { err = json.Unmarshal(text, &r) })
		if err != nil {
			return
		}
		next := New(newFake(), slog.New(slog.DiscardHandler))
		used := next.Resume(rules, &r)
		if used != next.Known() || used && !bytes.Equal(r.Rules, left.Rules) {
			t.Errorf("used %t, known %t: %s", used, next.Known(), text)
		}
		if used && workload.Sorted(rules) != before {
			t.Error("the rules have changed")
		}
	})
}
