package test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// outlet is a destination of the log that blocks at first.
type outlet struct {
	*os.File
	// free unblocks it and returns all that was written; nil: impossible.
	free func(t *testing.T) string
}

// outlets are destinations where a log can block.
var outlets = map[string]func(t *testing.T) outlet{
	"full device":            fullDevice,
	"full file system":       fullFileSystem,
	"pipe that nobody reads": fullPipe,
	"pipe without a reader":  brokenPipe,
}

// changes is how many changes the daemon has to follow while its log is
// blocked.
const changes = 5

// A blocked log delays neither the start nor a change nor the end, and its
// buffered lines are written as soon as that is possible.
func TestBlockedLog(t *testing.T) {
	for name, open := range outlets {
		t.Run(name, func(t *testing.T) {
			c := newCluster(t, 2)
			to := open(t)
			web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
			c.write(web)
			start := time.Now()
			d := c.start(func(cmd *exec.Cmd) { cmd.Stderr = to.File })
			c.answersFrom(web, "pod-0")
			started := time.Since(start)

			c.breakFile()
			for i := range changes {
				web.Pods = c.Pods[(i+1)%2 : (i+1)%2+1]
				c.replace(web)
				c.answersFrom(web, web.Pods[0].Name)
			}
			took := time.Since(start) - started
			if to.free != nil {
				wantLog(t, to)
			}
			start = time.Now()
			d.stop(t)
			fmt.Fprintf(t.Output(), "log to a %s: serves after %v, %d changes took %v, the end %v\n",
				name, started.Round(time.Millisecond), changes, took.Round(time.Millisecond), time.Since(start).Round(time.Millisecond))
		})
	}
}

// breakFile makes the daemon log an error.
func (c *cluster) breakFile() {
	c.t.Helper()
	if err := os.WriteFile(c.file, []byte("kind: Service\nspec: [this is not a service"), 0o644); err != nil {
		c.t.Fatal(err)
	}
}

// wantLog waits for the whole log from its first line, in whole lines.
func wantLog(t *testing.T, to outlet) {
	t.Helper()
	eventually(t, func() error {
		log := to.free(t)
		if n := strings.Count(log, `msg="rules applied"`); n < changes || !strings.HasSuffix(log, "\n") {
			return fmt.Errorf("the log has %d changes, want %d:\n%s", n, changes, log)
		}
		for line := range strings.Lines(log) {
			if !strings.HasPrefix(line, "time=") {
				return fmt.Errorf("torn line in the log: %q", line)
			}
		}
		return nil
	})
}

func fullDevice(t *testing.T) outlet {
	return outlet{File: openFile(t, "/dev/full")}
}

// fullFileSystem returns a file on a file system with room for only a part of a
// line.
func fullFileSystem(t *testing.T) outlet {
	dir := t.TempDir()
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast, log := filepath.Join(dir, "ballast"), filepath.Join(dir, "log")
	f := openFile(t, log)
	const page = 4096
	begun := bytes.Repeat([]byte("-"), page-10)
	if _, err := f.Write(begun); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("fill a file system: got %v, want ENOSPC", err)
	}
	return outlet{f, func(t *testing.T) string {
		_ = os.Remove(ballast)
		text, err := os.ReadFile(log)
		if err != nil {
			t.Fatal(err)
		}
		return string(bytes.TrimPrefix(text, begun))
	}}
}

// fullPipe returns a pipe with a reader that does not read yet.
func fullPipe(t *testing.T) outlet {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	filled := 0
	for {
		n, err := unix.Write(fds[1], make([]byte, 1<<10))
		if errors.Is(err, unix.EAGAIN) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		filled += n
	}
	if err := unix.SetNonblock(fds[1], false); err != nil {
		t.Fatal(err)
	}
	reader, writer := os.NewFile(uintptr(fds[0]), "reader"), os.NewFile(uintptr(fds[1]), "writer")
	t.Cleanup(func() { reader.Close(); writer.Close() })
	var log []byte
	return outlet{writer, func(t *testing.T) string {
		if err := reader.SetReadDeadline(time.Now().Add(silence)); err != nil {
			t.Fatal(err)
		}
		more, err := io.ReadAll(reader)
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("read a pipe: got %v, want a timeout", err)
		}
		log = append(log, more...)
		return string(log[filled:])
	}}
}

func brokenPipe(t *testing.T) outlet {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	reader.Close()
	t.Cleanup(func() { writer.Close() })
	return outlet{File: writer}
}

func openFile(t *testing.T, name string) *os.File {
	t.Helper()
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// The log is the only output of the daemon, so it runs on a read-only file
// system.
func TestReadOnlyFileSystem(t *testing.T) {
	c := newCluster(t, 2)
	web := service{Name: "web", N: 1, Pods: c.Pods[:1]}
	c.write(web)
	// The input's directory may be another file system.
	const readOnly = `mount --make-rprivate / && mount -o remount,bind,ro / && ! touch "/$0" 2>/dev/null && exec "$@"`
	drains := "--drain-file=" + filepath.Join(t.TempDir(), "drain.yaml") // in a directory that is there
	d := c.start(func(cmd *exec.Cmd) {
		own := append([]string{"unshare", "--mount", "sh", "-c", readOnly, "nftproxy-was-here", cmd.Path}, append(cmd.Args[1:], drains)...)
		unshare, err := exec.LookPath(own[0])
		if err != nil {
			t.Fatal(err)
		}
		cmd.Path, cmd.Args = unshare, own
	})
	c.answersFrom(web, "pod-0")
	web.Pods = c.Pods[1:]
	c.replace(web)
	c.answersFrom(web, "pod-1")
	d.stop(t)
	noSocket := regexp.MustCompile(`(?m)^.* level=WARN msg="commands of root cannot ask this process, because it has no directory for its socket: .*read-only.*\n`)
	log := d.log.String()
	if rest := noSocket.ReplaceAllString(log, ""); strings.Contains(rest, "level=ERROR") || strings.Contains(rest, "read-only") || len(noSocket.FindAllString(log, -1)) != 1 {
		t.Errorf("the daemon logs errors, or not that it has no socket:\n%s", log)
	}
}
