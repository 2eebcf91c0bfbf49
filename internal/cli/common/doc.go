// Package common has the parts of commands that the program of a node and the one of an operator share: questions to
// explain, what selects events, archives for support, and the report of a test.
package common
