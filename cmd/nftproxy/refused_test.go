package main

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/apply"
	"github.com/nftproxy/nftproxy/internal/apply/applytest"
	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/netlab"
	"github.com/nftproxy/nftproxy/internal/render"
	"github.com/nftproxy/nftproxy/internal/source"
)

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
	a := apply.New(applytest.Picky{Conn: conn, Comments: "default/bad:"}, slog.New(slog.DiscardHandler))
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
