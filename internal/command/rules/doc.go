// Package rules has the commands that lead from objects to rules: render, diff and apply.
package rules
