package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/coatcheck/coatcheck/internal/wire"
	"github.com/coatcheck/coatcheck/snowflake"
)

// SegmentIDs asks the service for n ids (1 to 10,000) of a tag from the range that it has fetched
// ahead. They rise. After an error ask again: lost ids are a gap. ErrNotFound: the service makes no
// new tags, and there is none of that name.
func (c *Client) SegmentIDs(ctx context.Context, tag string, n int) ([]int64, error) {
	var taken struct {
		IDs []snowflake.ID `json:"ids"` // for the form of the numbers in JSON
	}
	take := call{op: "take ids", method: http.MethodGet, path: "/id/segment/" + tag + "?n=" + strconv.Itoa(n), status: http.StatusOK, into: &taken}
	if err := c.onNamed(ctx, tag, take); err != nil {
		return nil, err
	}
	if len(taken.IDs) != n {
		return nil, take.unreadable()
	}
	ids := make([]int64, n)
	for i, id := range taken.IDs {
		ids[i] = int64(id)
	}
	return ids, nil
}

// SetSegment has a tag go on at the id next, 1 or more: the way out of ErrBehind. It goes forward
// only: ErrInvalidRequest for an id below what Redis knows of, and for tags of an SQL database.
// Ranges that services have fetched ahead stay in use.
func (c *Client) SetSegment(ctx context.Context, tag string, next int64) error {
	asked := wire.Segment{Tag: tag, Next: strconv.FormatInt(next, 10)}
	var now wire.Segment
	set := call{op: "set tag", method: http.MethodPut, path: "/id/segment/" + tag, body: wire.SegmentRequest{Next: asked.Next}, status: http.StatusOK, into: &now}
	if err := c.onNamed(ctx, tag, set); err != nil {
		return err
	}
	if now != asked {
		return set.unreadable()
	}
	return nil
}

// SnowflakeIDs asks the service to stamp n ids (1 to 10,000) with its own worker id of a pool; ""
// is the service's default pool. It is for programs that need few ids: one that holds a worker id
// stamps without a request. After an error ask again: lost ids are a gap.
func (c *Client) SnowflakeIDs(ctx context.Context, pool string, n int) ([]snowflake.ID, error) {
	var stamped struct {
		IDs []snowflake.ID `json:"ids"`
	}
	path := "/id/snowflake"
	if pool != "" {
		path += "/" + pool
	}
	stamp := call{op: "stamp ids", method: http.MethodGet, path: path + "?n=" + strconv.Itoa(n), status: http.StatusOK, into: &stamped}
	if pool == "" {
		pool = "-" // a name like any other, for the check
	}
	if err := c.onNamed(ctx, pool, stamp); err != nil {
		return nil, err
	}
	if len(stamped.IDs) != n {
		return nil, stamp.unreadable()
	}
	return stamped.IDs, nil
}
