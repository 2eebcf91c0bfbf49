package input

import (
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/nftproxy/nftproxy/internal/testkit/sourcetest"
)

// TestValidateMemory limits the memory that validate needs for each object, at most and with all
// that the system has given: what it needs in any case is the difference to a small input. On a busy
// machine the collector ends later, and the peak is higher: the least of a few runs counts.
func TestValidateMemory(t *testing.T) {
	const few, many = 1000, 20_000 // Services, each with a slice
	const limit = 1200
	small, least := validatePeak(t, few), math.MaxInt
	for range 4 {
		least = min(least, (validatePeak(t, many)-small)/(2*(many-few)))
		t.Logf("%d bytes for an object", least)
		if least <= limit {
			return
		}
	}
	t.Errorf("an object needs %d bytes, more than %d", least, limit)
}

// validatePeak returns the most bytes that were resident.
func validatePeak(t *testing.T, services int) int {
	t.Helper()
	dir, texts := t.TempDir(), sourcetest.ManyTexts(services)
	for i, files := 0, 4; i < files; i++ {
		part := texts[i*len(texts)/files : (i+1)*len(texts)/files]
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.yaml", i)), sourcetest.ListOf(part), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.Command(os.Args[0], "validate", "-f", dir)
	cmd.Env = append(os.Environ(), sayPeak+"=1", "GOGC=")
	out, err := cmd.CombinedOutput()
	_, peak, found := strings.Cut(strings.TrimSpace(string(out)), "\npeak ")
	kb, badNumber := strconv.Atoi(peak)
	if err != nil || !found || badNumber != nil || !strings.Contains(string(out), ": valid\n") {
		t.Fatalf("%v: %s", err, out)
	}
	return kb << 10
}
