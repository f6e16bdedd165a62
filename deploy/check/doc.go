// Package check has no code beside its tests.
package check
