package kernel

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/kernel/codec"
	"github.com/nftproxy/nftproxy/internal/nft"
	"github.com/nftproxy/nftproxy/internal/plan"
	"github.com/nftproxy/nftproxy/internal/testkit/workload"
)

// TestTry: a trial of rules that exist already and belong to another connection is not
// refused. It changes nothing, not even the generation, which watchers would see.
func TestTry(t *testing.T) {
	s := newSandbox(t)
	if _, err := s.Own(); err != nil {
		t.Fatal(err)
	}
	s.apply(t, workload.Sample())
	other := s.another(t)
	listing := s.nft(t, "list", "ruleset")
	before, err := s.Generation()
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		refused, err := other.Try(plan.Diff(&nft.Ruleset{}, workload.Sample()))
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refused {
			t.Errorf("%s: %v", r.Object, r.Err)
		}
	}
	if now := s.nft(t, "list", "ruleset"); now != listing {
		t.Errorf("a trial has changed the rules:\n%s", now)
	}
	if after, err := s.Generation(); err != nil || after != before {
		t.Errorf("generation %d after %d: %v", after, before, err)
	}
}

// TestTryRefused tries features that no kernel has. Exactly the messages that need
// them, or that refer to something refused, are refused.
func TestTryRefused(t *testing.T) {
	s := newSandbox(t)
	for name, c := range map[string]struct {
		typ        uint16
		old, new   string // what is spoilt in messages of the type about the object
		object     string // or that mention it
		expression string // of rules, that is refused
	}{
		"expression": {unix.NFT_MSG_NEWRULE, "numgen\x00", "nogood\x00", "numgen", "nogood"},
		"hook":       {unix.NFT_MSG_NEWCHAIN, "\x08\x00\x01\x00\x00\x00\x00\x03", "\x08\x00\x01\x00\x00\x00\x00\x63", " output", ""},
		"set":        {unix.NFT_MSG_NEWSET, "\x08\x00\x03\x00\x00\x00\x00\x00", "\x08\x00\x03\x00\x80\x00\x00\x00", "hairpin", "lookup"},
	} {
		t.Run(name, func(t *testing.T) {
			transaction, err := codec.Encode(plan.Diff(&nft.Ruleset{}, workload.Sample()))
			if err != nil {
				t.Fatal(err)
			}
			var want, got []string
			for i := range transaction.Messages {
				m := &transaction.Messages[i]
				if !strings.Contains(m.String(), c.object) {
					continue
				}
				if m.Type == c.typ {
					m.Data = bytes.Replace(m.Data, []byte(c.old), []byte(c.new), 1)
				}
				expression := ""
				if m.Type == unix.NFT_MSG_NEWRULE {
					expression = c.expression
				}
				want = append(want, m.String()+" "+expression)
			}
			refused, err := s.tryTransaction(transaction, unix.NFT_TABLE_F_DORMANT)
			if err != nil || len(refused) == 0 {
				t.Fatalf("%d messages are refused, %v", len(refused), err)
			}
			for _, r := range refused {
				got = append(got, r.String()+" "+r.Expression)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

// TestRefusedTransactionIsLogged: at debug level the log has every message of a
// transaction that the kernel refuses.
func TestRefusedTransactionIsLogged(t *testing.T) {
	s := newSandbox(t)
	var log strings.Builder
	s.Log = slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	p := plan.Diff(&nft.Ruleset{}, workload.Sample())
	if _, err := s.Commit(Prepared{Plan: p}, AnyGeneration); err != nil || log.Len() > 0 {
		t.Fatalf("%v, logged %q", err, &log)
	}
	deletion := &plan.Plan{Changes: []plan.Change{{Verb: plan.Delete, Chain: &nft.Chain{Name: "output"}}, {Verb: plan.Delete, Chain: &nft.Chain{Name: "nowhere"}}}}
	if _, err := s.Commit(Prepared{Plan: deletion}, AnyGeneration); !errors.Is(err, unix.ENOENT) {
		t.Fatal(err)
	}
	for _, want := range []string{`"message":2`, `1: delete chain ip nftproxy output (`, "no such file", `2: delete chain ip nftproxy nowhere (`} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%s is not in the log: %s", want, &log)
		}
	}
}
