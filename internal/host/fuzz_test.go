package host

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzAddress: any message about an address has an interface and an address, or none that counts.
func FuzzAddress(f *testing.F) {
	header := []byte{unix.AF_INET, 32, unix.IFA_F_PERMANENT, 0, 2, 0, 0, 0}
	f.Add(slices.Concat(header, []byte{8, 0, unix.IFA_LOCAL, 0, 192, 0, 2, 1, 8, 0, unix.IFA_ADDRESS, 0, 192, 0, 2, 1, 5, 0, attributeProtocol, 0, addressProtocol, 0, 0, 0}))
	f.Add(slices.Concat(header, []byte{8, 0, unix.IFA_LOCAL, 0, 192, 0, 2, 1, 20, 0, unix.IFA_ADDRESS, 0, 0xfd}, make([]byte, 15)))
	f.Add(slices.Concat([]byte{unix.AF_INET6, 128, 0, 0, 2, 0, 0, 0, 20, 0, unix.IFA_ADDRESS, 0, 0xfd}, make([]byte, 15)))
	f.Add(slices.Concat([]byte{unix.AF_INET, 24, 0, 0, 2, 0, 0, 0}, []byte{8, 0, unix.IFA_LOCAL, 0, 192, 0, 2, 1}))
	f.Add(header[:7])
	f.Fuzz(func(t *testing.T, message []byte) {
		index, a, is, err := decodeAddress(message)
		if len(message) < len(header) {
			if err == nil {
				t.Errorf("%x is too short, and no error", message)
			}
			return
		}
		if err == nil && a.Is4() && (is.Network || int(message[1]) != a.BitLen()) {
			t.Errorf("%x: the network %s of interface %d counts as an address", message, a, index)
		}
		if is.Marked && !slices.Contains(message[len(header):], addressProtocol) {
			t.Errorf("%x has no mark", message)
		}
	})
}

// FuzzStatusField: of any status of a process, a field is one line, which begins with its name.
func FuzzStatusField(f *testing.F) {
	for _, status := range []string{"Name:\tx\\nTgid:\t1\nTgid:\t4711\nCapEff:\t000001ffffffffff\n", "Name:\tTgid:\t1\n", "Tgid:", "\nTgid:\n\n"} {
		f.Add(status)
	}
	f.Fuzz(func(t *testing.T, status string) {
		got := statusField(status, "Tgid")
		if strings.Contains(got, "\n") || got != "" && !strings.HasPrefix(status, "Tgid:") && !strings.Contains(status, "\nTgid:") {
			t.Errorf("%q in %q", got, status)
		}
	})
}

// TestRestoreOnlySettings: "nftproxy cleanup" writes no other file that the record of changes may name.
func TestRestoreOnlySettings(t *testing.T) {
	root := t.TempDir()
	file := filepath.Join(root, "passwd")
	if err := os.WriteFile(file, []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"passwd", "proc/sys/net/../../../passwd"} {
		restored, err := System(root).Restore(Change{File: name, From: "root", To: "1"})
		if text, readErr := os.ReadFile(file); restored || err == nil || string(text) != "1" {
			t.Errorf("%s is restored: %t, %v; the file has %q, %v", name, restored, err, text, readErr)
		}
	}
}

// FuzzRestore: whatever a record of changes says, "nftproxy cleanup" writes settings of the network only.
func FuzzRestore(f *testing.F) {
	const password, setting = "etc/passwd", "proc/sys/net/ipv4/ip_forward"
	for _, file := range []string{setting, password, "/" + password, "proc/sys/net/../../../" + password, "proc/sys/kernel/core_pattern", hashsize, "proc/sys/net", "proc/sys/net/\x00", ""} {
		f.Add(file, "root", "1")
	}
	root := f.TempDir() // each fuzzing process has its own
	outside := []string{password, "proc/sys/kernel/core_pattern"}
	f.Fuzz(func(t *testing.T, file, from, to string) {
		for _, name := range append(outside, setting, hashsize) {
			path := filepath.Join(root, name)
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, []byte("1"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		restored, err := System(root).Restore(Change{File: file, From: from, To: to})
		if restored && (err != nil || file != setting && file != hashsize) {
			t.Errorf("%q is restored, %v", file, err)
		}
		for _, name := range outside {
			if text, err := os.ReadFile(filepath.Join(root, name)); err != nil || string(text) != "1" {
				t.Errorf("%q changes %s to %q, %v", file, name, text, err)
			}
		}
	})
}
