package kernel

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/nftproxy/nftproxy/internal/netlinkio"
)

// Outcome is what an error of a question or a transaction means to the caller.
type Outcome uint8

const (
	Done    Outcome = iota // there is no error
	Refused                // permanently; nothing has changed
	Busy                   // a chain or set to delete is in use, or a dump is under way; nothing has changed
	Later                  // another program was faster, or the kernel not ready; nothing has changed
	Short                  // the kernel lacks memory; nothing has changed
	Lost                   // the answer is lost; the transaction may have been committed
)

// outcomes of errors that are not final. The kernel answers EAGAIN and ERESTART
// to a batch for a stale generation or a missing module, EBUSY to the deletion of
// what is in use, and loses answers with ENOBUFS.
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
