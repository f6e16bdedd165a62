package server

import (
	"testing"

	"github.com/coatcheck/coatcheck/internal/names"
	"github.com/coatcheck/coatcheck/internal/testing/expect"
)

// Two versions that name a repeatable increment in two ways count its repeat as another one.
func TestNamesOfRepeatableIncrementsAreFixed(t *testing.T) {
	const digest = "Np0vk2SPTwJMO2adIF9TSMMj9jp-ljd4" // of anything
	for what, row := range map[string][2]string{
		"a key of nobody":                          {repeatable("", "key"), "key"},
		"a key of nobody that looks like a digest": {repeatable("", digest), "pZ-gLpj91tBxJoCKcRudrgRnmTo114s0"},
		"a key of a principal":                     {repeatable("ann", "key"), "xszdfi1h5TjPsMRvd9FNaTBzqFTQRsve"},
		"a digest of a principal":                  {repeatable("ann", digest), "oXDqvsnvFU7DLz77gpk01SvEcseIyLlb"},
	} {
		expect.SameName(t, names.Version, what, row[0], row[1])
	}
}
