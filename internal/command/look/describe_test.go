package look

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/api"
	"github.com/nftproxy/nftproxy/internal/cli"
)

// TestDescribeFile describes Services of a file. The results are golden files, of which
// docs/inspect.md shows some.
func TestDescribeFile(t *testing.T) {
	for question, name := range map[string]string{"shop/web": "web", "cart": "cart"} {
		r := program.Run("", "describe", question, "-f", shop, "--hostname-override", "node-1")
		if r.Code != 0 {
			t.Fatal(r.Stderr)
		}
		golden(t, filepath.Join("testdata", "describe-"+name+".txt"), r.Stdout)
	}
	r := program.Run("", "describe", "shop/web", "-f", shop, "--hostname-override", "node-1", "-o", "json")
	var s api.Description
	if err := json.Unmarshal([]byte(r.Stdout), &s); err != nil || r.Code != 0 {
		t.Fatal(err, r.Stderr)
	}
	shares := map[string]float64{}
	for _, e := range s.Ports[1].Endpoints {
		shares[e.Address] = e.Inside.Part
	}
	if s.From != api.FromInput || s.AffinitySeconds != 600 || shares["10.128.0.2:8080"] != 0.5 || shares["10.128.1.4:8080"] != 0.25 || s.Ports[1].Endpoints[3].Outside.LeftOut == "" {
		t.Errorf("JSON: %+v", s)
	}
}

func TestDescribeErrors(t *testing.T) {
	for args, want := range map[string]string{
		"":             "expected the name of a Service or Balance",
		"shop/web a":   "expected the name of a Service or Balance",
		"wbe":          `no Service is named "wbe": did you mean shop/web?`,
		"shp/web":      `no Service is named "shp/web": did you mean shop/web?`,
		"db":           `"db" is the name of several Services: choose other/db, shop/db`,
		"web -o xml":   "unknown format",
		"nothing-like": `no Service is named "nothing-like"` + "\n",
	} {
		r := program.Run("", append([]string{"describe", "-f", shop}, strings.Fields(args)...)...)
		if r.Code != cli.CodeError || !strings.Contains(r.Stderr, want) {
			t.Errorf("%q: %d %s, want %q", args, r.Code, r.Stderr, want)
		}
	}
}
