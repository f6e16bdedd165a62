// Package cli is the program coatcheck: its commands, each in a file of its own, and what they have
// in common, which is reading flags, printing, and exit codes. Main runs the command that the
// process's arguments name; cmd/coatcheck calls it and nothing else.
package cli
