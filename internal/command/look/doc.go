// Package look has the commands that show what a node serves, and follow connections: status, describe, explain, trace, test, top and observe.
package look
