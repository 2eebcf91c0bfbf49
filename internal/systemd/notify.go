// Package systemd reports the state of the process to systemd: when the rules are
// active, a line for "systemctl status", and that the agent works.
package systemd

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"

	"github.com/nftproxy/nftproxy/internal/parallel"
	"github.com/nftproxy/nftproxy/internal/terminal"
)

const (
	// statusPause is the minimum time between two status lines. While they cost more
	// than a tenth of it to make, the pause is longer.
	statusPause = time.Second
	// maxStatus is how many characters of a status line are sent.
	maxStatus = 400
	// stopTime limits the wait for messages that systemd does not take.
	stopTime = time.Second
	// queued is how many messages wait while systemd takes none.
	queued = 16
)

// Supervised reports whether systemd, or a program like it, asked for messages.
func Supervised() bool { return os.Getenv("NOTIFY_SOCKET") != "" }

// Failed sends why the process ends, for "systemctl status".
func Failed(err error) {
	_, _ = daemon.SdNotify(false, statusLine(err.Error())) // the log has the error as well
}

// Notifier sends messages to systemd. None of its methods blocks, except Run. A nil
// Notifier sends nothing.
type Notifier struct {
	out      chan string
	stale    chan struct{} // the status may have changed
	ready    sync.Once
	watchdog time.Duration // systemd restarts a process that is silent for longer
	log      *slog.Logger
}

// New returns a notifier, or nil if the process is not supervised.
func New(log *slog.Logger) *Notifier {
	if !Supervised() {
		return nil
	}
	n := &Notifier{out: make(chan string, queued), stale: make(chan struct{}, 1), log: log}
	var err error
	if n.watchdog, err = daemon.SdWatchdogEnabled(false); err != nil {
		log.Warn("no watchdog: the environment cannot be read", "error", err)
	}
	return n
}

// Ready reports that the process serves. Only the first call has an effect.
func (n *Notifier) Ready() {
	if n != nil {
		n.ready.Do(func() { n.send(daemon.SdNotifyReady) })
	}
}

// Beat reports that the process works. It is due every [Notifier.BeatPeriod].
func (n *Notifier) Beat() {
	if n != nil {
		n.send(daemon.SdNotifyWatchdog)
	}
}

// BeatPeriod returns the time between two calls of Beat; zero: there is no watchdog.
// Three of four beats may be missing.
func (n *Notifier) BeatPeriod() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog / 4
}

// Changed reports that the status may have changed.
func (n *Notifier) Changed() {
	if n == nil {
		return
	}
	parallel.Signal(n.stale)
}

func (n *Notifier) send(message string) {
	select {
	case n.out <- message:
	default: // systemd hangs
	}
}

// Run sends messages until ctx ends, and then that the process is stopping. status
// returns the line to show.
func (n *Notifier) Run(ctx context.Context, status func() string) {
	if n == nil {
		return
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		n.deliver()
	}()
	n.followStatus(ctx, status)
	limit, cancel := context.WithTimeout(context.Background(), stopTime)
	defer cancel()
	for _, message := range []string{daemon.SdNotifyStopping, ""} { // these wait for room in the queue
		select {
		case n.out <- message:
		case <-limit.Done():
		}
	}
	select {
	case <-sent:
	case <-limit.Done():
	}
}

// deliver sends what is queued until an empty message. Without a reader, the system
// may block it.
func (n *Notifier) deliver() {
	failed := false
	for message := range n.out {
		if message == "" {
			return
		}
		_, err := daemon.SdNotify(false, message)
		if err != nil && !failed {
			n.log.Warn("systemd cannot be notified", "error", err)
		}
		failed = err != nil
	}
}

func (n *Notifier) followStatus(ctx context.Context, status func() string) {
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-n.stale:
		}
		begin := time.Now()
		if line := statusLine(status()); line != last {
			n.send(line)
			last = line
		}
		if !parallel.Wait(ctx, max(statusPause, 10*time.Since(begin))) {
			return
		}
	}
}

// statusLine returns the message with the first line of a text.
func statusLine(text string) string {
	line, _, more := strings.Cut(text, "\n")
	runes := []rune(terminal.Printable(line))
	if len(runes) > maxStatus {
		runes, more = runes[:maxStatus], true
	}
	if more {
		runes = append(runes, []rune("...")...)
	}
	return "STATUS=" + string(runes)
}
