package server

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/console"
	"github.com/coatcheck/coatcheck/internal/redisprobe"
	"github.com/coatcheck/coatcheck/redisstore"
)

// ConsoleMode is what the web page at /console/ may do.
type ConsoleMode string

// The modes of the console. They are about the page: Config.Access decides what a caller may do.
const (
	ConsoleWrite ConsoleMode = "write" // it has buttons for what the caller may do
	ConsoleRead  ConsoleMode = "read"  // it has none that change anything
	ConsoleOff   ConsoleMode = "off"   // there is no page
)

// ConsoleConfig sets the web page up. The zero value is a page with buttons.
type ConsoleConfig struct {
	Mode ConsoleMode // "" = ConsoleWrite
	// what can be lost with this store, and when: a line for people; "" = none
	Durability string
}

// consolePage is the handlers of the page.
type consolePage struct {
	config    ConsoleConfig
	admission *admission
	store     *redisstore.Store
	hazards   hazards
}

// routes registers the page's routes. Its files are open to all: they hold no data.
func (h *consolePage) routes(at *router) {
	if h.config.Mode == ConsoleOff {
		return
	}
	at.open.add("GET,HEAD /console", "", smallPrice, func(c echo.Context) error {
		return c.Redirect(http.StatusPermanentRedirect, "/console/")
	})
	at.open.add("GET,HEAD /console/", "", smallPrice, sendConsoleFile)
	at.open.add("GET,HEAD /console/:file", "", smallPrice, sendConsoleFile)
	at.open.handle("GET /console/api/session", "", smallPrice, h.session, no)
}

func sendConsoleFile(c echo.Context) error {
	if !console.Serve(c.Response(), c.Request(), c.Param("file")) {
		return echo.ErrNotFound
	}
	return nil
}

// session answers with the caller and its rights. It is open to all, and says why a key is not
// taken instead of refusing it, so that the page can ask for another one.
func (h *consolePage) session(r *request) error {
	told := api.Session{Access: h.admission.policy != nil, Readonly: h.config.Mode == ConsoleRead}
	who, err := h.admission.identify(r, clients{})
	if wrong, ok := errors.AsType[*fault](err); ok {
		who, told.Refused = access.Caller{}, wrong.detail
	} else if err != nil {
		return err
	}
	r.Response().Header().Del(echo.HeaderWWWAuthenticate)
	told.Role, told.Principal, told.Names = who.Role.String(), who.Principal, slices.Clone(who.Names)
	if told.Names == nil {
		told.Names = []string{}
	}
	if who.May(access.Read) {
		told.Store, told.Ack, told.Durability = string(h.store.Mode()), max(h.store.Ack(), 0), h.config.Durability
		found := h.hazards.of(r.ctx(), h.store)
		told.Hazards, told.Durability = found.hazards, cmp.Or(told.Durability, found.durability)
	}
	return r.answer(http.StatusOK, told)
}

// hazards caches what the Redis can lose.
type hazards struct {
	mu          sync.Mutex
	read, tried time.Time
	found       canLose
}

type canLose struct {
	durability string
	hazards    []string // by its settings
}

const (
	hazardsEvery = time.Minute
	hazardsAgain = time.Second // after Redis did not answer
)

// of asks Redis, if the cache is too old. A Redis that does not answer has no known hazards.
func (h *hazards) of(ctx context.Context, store *redisstore.Store) canLose {
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.read) < hazardsEvery || time.Since(h.tried) < hazardsAgain {
		return h.found
	}
	found, err := redisprobe.Hazards(ctx, store)
	h.tried = time.Now()
	if err != nil {
		return h.found
	}
	h.read, h.found = time.Now(), canLose{durability: redisprobe.Durability(ctx, store)}
	for _, hazard := range found {
		h.found.hazards = append(h.found.hazards, hazard.String())
	}
	return h.found
}
