// Package explain tells what becomes of the first packet of a connection, and
// why. [Explain] walks through the typed rules of a table as the kernel does
// and knows nothing else; [Look] adds what the objects behind the rules tell:
// which endpoints were left out, and who lost a conflict.
//
// Whatever the walk cannot decide, such as a rule that is not ours, makes the
// outcome [Unknown]; nothing is guessed.
package explain
