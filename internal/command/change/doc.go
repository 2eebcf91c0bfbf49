// Package change has the commands that take servers out of service and change them: drain, set, add, remove and the like.
package change
