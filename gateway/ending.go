package gateway

import (
	"net/http"
	"strings"

	"github.com/coatcheck/coatcheck/idempotency"
)

// endBy observes how an attempt ends by the upstream's answer: said are the values of
// Idempotency-Not-Begun. The guard decides by the status, if the header does not.
func (g *Gateway) endBy(answer *http.Response, attempt *idempotency.Attempt, said []string) {
	ctx := answer.Request.Context()
	x := exchangeOf(ctx)
	switch word := strings.ToLower(strings.Join(said, ", ")); word {
	case "true", "1", "?1":
		attempt.Release()
		return
	case "", "false", "0", "?0":
	default:
		g.log.WarnContext(ctx, idempotency.NotBegunHeader+" is none of true, 1 and ?1, so it frees no key", "value", word[:min(len(word), 40)],
			"route", x.match())
	}
	if x.route != nil && x.route.Doubtful(answer.StatusCode) {
		g.note(ctx, x, byStatus, nil)
	}
}
