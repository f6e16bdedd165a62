package holder

import "github.com/coatcheck/coatcheck/internal/holding"

type (
	Leaser  = leaser
	Verdict = holding.Verdict
)

var (
	Hold  = hold
	Start = start
)
