package server

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/internal/compat"
)

// routes is the whole API on a page: at.<role> says what a caller needs to be let in.
func (s *Server) routes() *echo.Echo {
	e := echo.New()
	e.HideBanner, e.HidePort = true, true
	e.IPExtractor = echo.ExtractIPDirect()
	e.HTTPErrorHandler = s.writeError
	e.Use(s.chained())

	at := s.router(e)
	s.tokenRoutes(at)
	s.numberRoutes(at)
	s.doorRoutes(at)
	s.leaseRoutes(at)
	s.operationRoutes(at)
	s.consoleRoutes(at)
	s.listed, s.roles = at.complete(), at.roles
	for _, route := range e.Routes() {
		s.patterns[route.Path] = braces(route.Path)
	}
	return e
}

var no = allowQuery() // query parameters

func (s *Server) tokenRoutes(at *router) {
	at.use.POST("/token", s.issueToken, no)
	at.admin.GET("/token", s.listOperations, allowQuery("state", "prefix", "cursor", "n"))
	at.read.GET("/token/:token", s.tokenStatus, no)
	at.use.POST("/token/:token/claim", s.claimToken, no)
	at.use.POST("/token/:token/complete", s.completeToken, no)
	at.use.POST("/token/:token/extend", s.extendToken, no)
	at.use.POST("/token/:token/release", s.releaseToken, no)
	at.read.GET("/operation/:operation", s.showOperation, no)
	at.admin.POST("/operation/:operation/settle", s.settleOperation, no)

	if s.config.Dev {
		at.use.POST("/payments", s.pay, no, s.guard(s.paymentRoute()))
		at.read.GET("/payments", s.listPayments, no)
	}
}

func (s *Server) numberRoutes(at *router) {
	incr := allowQuery("by", "ttl_ms", "template", "calendar", "zone", "at")
	at.use.GET("/incr/:key", s.incr, handsOut, incr)
	at.use.POST("/incr/:key", s.incr, handsOut, incr)
	at.read.GET("/counter/:key", s.readCounter, no)
	at.admin.PUT("/counter/:key", s.setCounter, no)
	at.admin.DELETE("/counter/:key", s.removeCounter, no)
	at.read.GET("/counter", s.listCounters, allowQuery("prefix", "cursor", "n"))

	at.use.GET("/id/snowflake", s.snowflakes, handsOut, allowQuery("n", "format", "width"))
	at.use.GET("/id/snowflake/:pool", s.snowflakes, handsOut, allowQuery("n", "format", "width"))
	at.use.GET("/id/segment/:tag", s.segmentIDs, handsOut, allowQuery("n", "format", "width"))
	at.admin.PUT("/id/segment/:tag", s.setSegment, no)
	at.use.GET("/id/uuid", s.uuids, handsOut, allowQuery("n", "version"))
	at.read.GET("/id/decode/:id", s.decodeID, allowQuery("format", "pool", "layout", "epoch", "datacenter", "tag", "key"))
}

// doorRoutes are those of other systems. Such a system takes any method, and parameters that it
// does not know.
func (s *Server) doorRoutes(at *router) {
	all := []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	service := s.compatible()
	leaf := compat.NewLeaf(service, compat.LeafConfig(s.config.Leaf))
	leafs := clients{refuse: leaf.Refuse}
	at.use.forClients(leafs).Match(all, "/api/segment/get/:key", leaf.Segment)
	at.use.forClients(leafs).Match(all, "/api/snowflake/get/:key", leaf.Snowflake)
	at.read.forClients(leafs).Match(all, "/decodeSnowflakeId", leaf.Decode)
	at.read.forClients(leafs).Match(all, "/cache", leaf.Cache)
	at.read.forClients(leafs).Match(all, "/db", leaf.DB)

	tinyid := compat.NewTinyid(service, s.config.tinyidTokens())
	tinyids := at.use.forClients(clients{key: tinyid.Key, own: tinyid.Own, refuse: tinyid.Refuse})
	tinyids.Match(all, "/tinyid/id/nextId", tinyid.NextID)
	tinyids.Match(all, "/tinyid/id/nextIdSimple", tinyid.NextIDSimple)
	tinyids.Match(all, "/tinyid/id/nextSegmentId", tinyid.NextSegmentID)
	tinyids.Match(all, "/tinyid/id/nextSegmentIdSimple", tinyid.NextSegmentIDSimple)
}

func (s *Server) leaseRoutes(at *router) {
	at.use.POST("/worker/:pool", s.acquireWorker, no)
	at.admin.PUT("/worker/:pool", s.createPool, allowQuery("replace"))
	at.read.GET("/worker", s.listPools, allowQuery("prefix", "cursor", "n"))
	at.read.GET("/worker/:pool", s.ring, allowQuery("from", "n"))
	at.use.PUT("/worker/:pool/:worker_id", s.renewWorker, no)
	at.use.DELETE("/worker/:pool/:worker_id", s.releaseWorker, allowQuery("used_until"))

	at.use.POST("/lock/:name", s.acquireLock, no)
	at.use.PUT("/lock/:name", s.renewLock, no)
	at.use.DELETE("/lock/:name", s.releaseLock, allowQuery("force")) // with force: admin
	at.read.GET("/lock/:name", s.showLock, no)
	at.read.GET("/lock", s.listLocks, allowQuery("prefix", "cursor", "n"))
}

func (s *Server) operationRoutes(at *router) {
	looks := []string{http.MethodGet, http.MethodHead}
	at.open.Match(looks, "/", s.index)
	at.open.Match(looks, "/livez", s.live)
	at.open.Match(looks, "/readyz", s.ready)
	at.open.GET("/problems/:code", s.problem)
	s.documents(at.open, looks) // /openapi.yaml and /docs
	at.read.GET("/metrics", s.scrape)
	at.read.GET(policyPath, s.policies)
	at.open.GET("/favicon.ico", func(c echo.Context) error { return c.NoContent(http.StatusNoContent) })
}
