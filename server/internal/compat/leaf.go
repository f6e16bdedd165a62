package compat

import (
	"cmp"
	"errors"
	"maps"
	"net/http"
	"strconv"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/coatcheck/coatcheck/access"
	"github.com/coatcheck/coatcheck/segment"
	"github.com/coatcheck/coatcheck/server/internal/stamper"
	"github.com/coatcheck/coatcheck/snowflake"
	"github.com/coatcheck/coatcheck/workerlease"
)

// LeafConfig configures the handlers for clients of Meituan Leaf. The zero value offers it all.
type LeafConfig struct {
	NoSegment, NoSnowflake bool // modes that are switched off: they answer 0
	// of the Snowflake ids, which has Leaf's layout and epoch; "" = leaf
	Pool string
}

func (l LeafConfig) pool() string { return cmp.Or(l.Pool, "leaf") }

// leafLayout and leafEpoch are those of Leaf's ids. They cannot be set there.
const leafLayout = "41/10/12"

var leafEpoch = time.UnixMilli(1288834974657).UTC()

// Shapes are those of Leaf's ids.
func (l LeafConfig) Shapes() map[string]stamper.Shape {
	if l.NoSnowflake {
		return nil
	}
	return map[string]stamper.Shape{l.pool(): {Layout: snowflake.MustLayout(leafLayout), Epoch: leafEpoch}}
}

// Pin returns the pinned pools with that of Leaf's ids, in another map. One that is there stays.
func (l LeafConfig) Pin(pools map[string]workerlease.Pin) map[string]workerlease.Pin {
	if l.NoSnowflake {
		return pools
	}
	all := map[string]workerlease.Pin{l.pool(): {Shape: workerlease.Shape{Layout: leafLayout, Epoch: leafEpoch}}}
	maps.Copy(all, pools)
	return all
}

// Leaf's answers in place of an id.
const (
	notReady = -1 // nothing is initialised, or the clock was wrong
	noKey    = -2
	empty    = -3 // there is no id in either segment
)

// Leaf answers as Meituan Leaf does. Its methods are handlers, and safe for concurrent use.
type Leaf struct {
	service Service
	config  LeafConfig
}

// NewLeaf returns the handlers of a service.
func NewLeaf(service Service, config LeafConfig) *Leaf { return &Leaf{service, config} }

// Segment hands out the next id of a tag.
func (l *Leaf) Segment(c echo.Context) error {
	if l.config.NoSegment {
		return javaText(c, "0")
	}
	key, err := l.service.Name(c, "key")
	if err != nil {
		l.service.Refused(c, err)
		return l.exception(c, noKey) // such a key no table has
	}
	id, err := l.service.Segments.Next(c.Request().Context(), key)
	switch {
	case err == nil:
		l.service.Metrics.IDs("segment", 1)
		return javaText(c, strconv.FormatInt(id, 10))
	case errors.Is(err, segment.ErrNotFound):
		return l.exception(c, noKey)
	case errors.Is(err, segment.ErrClosed):
		return l.exception(c, notReady)
	}
	return l.none(c, err, empty)
}

// Snowflake hands out an id of the configured pool, whatever the key.
func (l *Leaf) Snowflake(c echo.Context) error {
	if l.config.NoSnowflake {
		return javaText(c, "0")
	}
	// the key has no meaning here, but it is a name, which the caller may have no right to
	if _, err := l.service.Name(c, "key"); err != nil && !access.From(c.Request().Context()).Names.All() {
		l.service.Refused(c, err)
		return l.exception(c, noKey)
	}
	var ids [1]snowflake.ID
	if _, err := l.service.Stamper.Stamp(c.Request().Context(), l.config.pool(), ids[:]); err != nil {
		return l.none(c, err, notReady)
	}
	l.service.Metrics.IDs("snowflake", 1)
	return javaText(c, ids[0].String())
}

// Decode takes an id apart as Leaf does: in its one layout and epoch, on the process's own clock.
func (l *Leaf) Decode(c echo.Context) error {
	if err := form(c); err != nil {
		return err
	}
	if !c.Request().Form.Has("snowflakeId") {
		return javaFault(c, http.StatusBadRequest, "org.springframework.web.bind.MissingServletRequestParameterException",
			"Required String parameter 'snowflakeId' is not present")
	}
	id, err := strconv.ParseInt(c.Request().Form.Get("snowflakeId"), 10, 64)
	if err != nil {
		return javaJSON(c, http.StatusOK, map[string]string{"errorMsg": "snowflake Id反解析发生异常!"}) //nolint:gosmopolitan // Leaf says it so
	}
	at := id>>22 + leafEpoch.UnixMilli()
	return javaJSON(c, http.StatusOK, struct {
		Timestamp string `json:"timestamp"`
		Worker    string `json:"workerId"`   //nolint:tagliatelle // Leaf's name
		Sequence  string `json:"sequenceId"` //nolint:tagliatelle // Leaf's name
	}{
		strconv.FormatInt(at, 10) + time.UnixMilli(at).Format("(2006-01-02 15:04:05.000)"),
		strconv.FormatInt(id>>12&1023, 10), strconv.FormatInt(id&4095, 10),
	})
}

// none is the answer without an id when one may come later, with a Retry-After that Leaf lacks.
func (l *Leaf) none(c echo.Context, err error, id int) error {
	l.service.logFailure(c, err)
	l.service.Problem(err).SetRetryAfter(c.Response().Header())
	return l.exception(c, id)
}

// exception is Leaf's answer without an id.
func (l *Leaf) exception(c echo.Context, id int) error {
	return javaFault(c, http.StatusInternalServerError, "com.sankuai.inf.leaf.server.exception.LeafServerException",
		"Result{id="+strconv.Itoa(id)+", status=EXCEPTION}")
}

// Refuse answers a caller that the service does not admit, as Leaf answers for an unknown path.
func (l *Leaf) Refuse(c echo.Context, err error) error {
	problem := l.service.Problem(err)
	c.Response().Header().Del(echo.HeaderWWWAuthenticate) // which belongs to 401
	const class = "com.sankuai.inf.leaf.server.exception.LeafServerException"
	return javaFault(c, http.StatusInternalServerError, class, problem.Title+": "+problem.Detail)
}
