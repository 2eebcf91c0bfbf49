package serve

import (
	"net/http"
	"time"
)

// Answers limits how many requests are answered concurrently: an expensive answer takes
// memory and processor time. It is safe for concurrent use.
type Answers struct {
	running chan struct{}
	timeout time.Duration
}

// NewAnswers returns a limit of n answers. A client that has not read its answer after
// timeout is disconnected.
func NewAnswers(n int, timeout time.Duration) *Answers {
	return &Answers{make(chan struct{}, n), timeout}
}

// Begin begins an answer, which ends when done is called. If there are too many, it
// responds with 429 and returns nil.
func (a *Answers) Begin(w http.ResponseWriter) (done func()) {
	select {
	case a.running <- struct{}{}:
	default:
		http.Error(w, "too many requests: try again", http.StatusTooManyRequests)
		return nil
	}
	// Only writers in tests lack deadlines.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(a.timeout))
	return func() { <-a.running }
}
