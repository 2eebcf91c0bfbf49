package main

import (
	"bytes"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source"
)

// picky is the kernel, to which the Service "default/bad" is told with comments
// that it does not take.
type picky struct{ *apply.Conn }

func (k picky) Commit(p *apply.Plan, generation uint32) (apply.Size, error) {
	return k.Conn.Commit(spoil(p), generation)
}

func (k picky) Check(p *apply.Plan, generation uint32) error {
	return k.Conn.Check(spoil(p), generation)
}

func spoil(p *apply.Plan) *apply.Plan {
	out := *p
	out.Changes = slices.Clone(p.Changes)
	for i, c := range p.Changes {
		if c.New != nil && strings.HasPrefix(c.New.Comment, "default/bad:") {
			e := *c.New
			e.Comment = strings.Repeat("x", 300)
			out.Changes[i].New = &e
		}
	}
	return &out
}

// TestApplyMost: 13.25. "apply" commits all but the Service that the kernel
// refuses, prints what it did, and fails with an error that names that Service.
func TestApplyMost(t *testing.T) {
	var conn *apply.Conn
	if err := netlab.TestNamespace(t).Do(func() (err error) { conn, err = apply.Open(); return err }); err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	bad := strings.NewReplacer("name: web", "name: bad", "service-name: web", "service-name: bad", "10.96.0.10", "10.96.0.11").Replace(service)
	in, err := (&source.Files{Paths: []string{"-"}, Stdin: strings.NewReader(service + "---" + bad)}).Load()
	if err != nil {
		t.Fatal(err)
	}
	routing := model.Resolve(in.Snapshot, model.Config{})
	a := apply.New(picky{conn}, slog.New(slog.DiscardHandler))
	for i, want := range []string{" to add, 0 to change, 0 to delete.", "No changes."} {
		var out bytes.Buffer
		err := applyMost(&out, a, routing, false)
		if errors.Is(err, errChanges) || err == nil || !strings.Contains(err.Error(), "Service default/bad: ") {
			t.Errorf("attempt %d: %v", i+1, err)
		}
		if !strings.HasSuffix(out.String(), want+"\n") || strings.Contains(out.String(), "bad") {
			t.Errorf("attempt %d prints %s", i+1, &out)
		}
	}
	current, _, err := conn.Read()
	if err != nil {
		t.Fatal(err)
	}
	if e := current.Table(model.IPv4).Set(render.ServicesMap).Elements; len(e) != 1 || e[0].Comment != "default/web:http" {
		t.Errorf("the kernel has %v", e)
	}
}
