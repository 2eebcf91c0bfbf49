// Package behaviour holds tests of docs/behaviour.md, the reference of what
// nftproxy does. They prove that every statement of the reference is named by a
// test or a case of package golden, and that tests name no statement that the
// reference lacks.
package behaviour
