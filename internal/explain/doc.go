// Package explain traces the first packet of a connection. [Explain] evaluates the
// typed rules of a table as the kernel does, without other knowledge;
// [Result.AddObjects] adds excluded endpoints and lost conflicts from the objects
// behind the rules.
//
// An outcome that cannot be decided, for example because of a foreign rule, is
// [Unknown].
package explain
