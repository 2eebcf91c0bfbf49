package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/model"
	"github.com/nftproxy/nftproxy/internal/nft"
)

// TestPictures proves that docs/images shows what the program does and what was
// measured.
func TestPictures(t *testing.T) {
	all, err := pictures("../../docs/performance")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range all {
		if is, err := os.ReadFile(filepath.Join("../../docs/images", name)); err != nil || !bytes.Equal(is, want) {
			t.Errorf("docs/images/%s is stale (%v): run \"make docs\"", name, err)
		}
		d := xml.NewDecoder(bytes.NewReader(want))
		for {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
	}
}

// TestStages proves that the packages in the picture exist.
func TestStages(t *testing.T) {
	for _, s := range stages {
		if _, err := os.Stat(filepath.Join("../../internal", s.pkg)); err != nil {
			t.Error(err)
		}
	}
}

// TestBaseChains proves that the picture of packets has every base chain of a table,
// and every set and map of all tables but those that it names with another one.
func TestBaseChains(t *testing.T) {
	table, err := table()
	if err != nil {
		t.Fatal(err)
	}
	picture, err := packets()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, c := range table.Chains {
		if c.Hook == nft.NoHook {
			continue
		}
		n++
		if !strings.Contains(string(picture), " "+c.Name+"</text>") {
			t.Errorf("base chain %s is not in the picture", c.Name)
		}
	}
	if n < 7 {
		t.Errorf("%d base chains in %s, want those of session affinity too", n, model.IPv4)
	}
	for _, name := range []string{nft.ServicesMap, nft.LanesMap, nft.EndpointsMap, nft.AffinityMap, nft.FirewalledSet, nft.SourceRangesSet,
		nft.HairpinSet, nft.MasqFrontendsSet, nft.LocalFrontendsSet, nft.ClusterIPsSet} {
		if table.Set(name) == nil || !strings.Contains(string(picture), name) {
			t.Errorf("set %s is not in the table or not in the picture", name)
		}
	}
}
