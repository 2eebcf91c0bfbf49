package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Outcome is what an error of a question or a transaction means for the one who
// asked.
type Outcome uint8

const (
	// Done: there is no error.
	Done Outcome = iota
	// Refused: the kernel's answer is no, and stays no. Nothing has changed.
	Refused
	// Busy: a chain or set to delete is still in use, or a dump is under way.
	// Nothing has changed.
	Busy
	// Later: another program was faster, or the kernel was not ready. Nothing has
	// changed.
	Later
	// Short: the kernel lacks memory. Nothing has changed.
	Short
	// Lost: the answer is lost. The transaction may have taken place.
	Lost
)

func (o Outcome) String() string {
	return [...]string{"done", "refused", "busy", "later", "short", "lost"}[o]
}

// outcomes of errors that are not final. The kernel answers EAGAIN and ERESTART
// to a batch for a stale generation or a missing module, EBUSY when it deletes
// what is referred to, and loses answers with ENOBUFS.
var outcomes = map[Outcome][]error{
	Lost:  {ErrNoAnswer, unix.ENOBUFS, unix.EINTR},
	Busy:  {unix.EBUSY},
	Short: {unix.ENOMEM},
	Later: {unix.ERESTART, ErrChanged, errInconsistent},
}

// OutcomeOf classifies an error of a [Conn].
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	for _, o := range []Outcome{Lost, Busy, Short, Later} {
		for _, e := range outcomes[o] {
			if errors.Is(err, e) {
				return o
			}
		}
	}
	if netlinkio.Fades(err) {
		return Later
	}
	return Refused
}
