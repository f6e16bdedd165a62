package server

import (
	"net/http"

	"github.com/labstack/echo/v4"
)

// routes is the whole API on a page.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = s.writeError
	e.Use(s.around()...)

	e.POST("/token", s.issueToken)
	e.GET("/token/:token", s.tokenStatus)
	e.POST("/token/:token/claim", s.claimToken)
	e.POST("/token/:token/complete", s.completeToken)
	e.POST("/token/:token/extend", s.extendToken)
	e.POST("/token/:token/release", s.releaseToken)

	e.GET("/incr/:key", s.incr)
	e.POST("/incr/:key", s.incr)
	e.GET("/counter/:key", s.readCounter)

	e.POST("/worker/:pool", s.acquireWorker)
	e.GET("/worker/:pool", s.ring)
	e.PUT("/worker/:pool/:worker_id", s.renewWorker)
	e.DELETE("/worker/:pool/:worker_id", s.releaseWorker)

	if s.config.Dev {
		e.POST("/payments", s.pay, s.guard(s.paymentRoute()))
		e.GET("/payments", s.listPayments)
	}

	looks := []string{http.MethodGet, http.MethodHead}
	e.Match(looks, "/", s.index)
	e.Match(looks, "/livez", s.live)
	e.Match(looks, "/readyz", s.ready)
	e.GET("/problems/:code", s.problem)
	e.GET("/idempotency-policy", s.policies)
	e.GET("/favicon.ico", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
	return e
}
