// Package explain traces the first packet of a connection. [Explain] evaluates the
// typed rules of a table as the kernel does and knows nothing else;
// [Result.AddObjects] adds what the objects behind the rules tell: the endpoints
// that were left out, and lost conflicts.
//
// Where the outcome cannot be decided, as with a rule that is not ours, it is
// [Unknown]; nothing is guessed.
package explain
