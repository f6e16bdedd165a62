package client

import (
	"context"
	"net/http"
	"strconv"

	"github.com/coatcheck/coatcheck/api"
	"github.com/coatcheck/coatcheck/snowflake"
)

// SegmentIDs asks the service for n ids (1 to 10,000) of a tag from the range that it has fetched
// ahead. They rise. After an error ask again: lost ids are a gap. ErrNotFound: the service makes no
// new tags, and there is none of that name.
func (c *Client) SegmentIDs(ctx context.Context, tag string, n int) ([]int64, error) {
	take := call{op: "take ids", name: tag, method: http.MethodGet, path: "/id/segment/" + tag + "?n=" + strconv.Itoa(n)}
	taken, err := c.idsOf(ctx, take, n)
	if err != nil {
		return nil, err
	}
	ids := make([]int64, n)
	for i, id := range taken {
		ids[i] = int64(id)
	}
	return ids, nil
}

// SetSegment has a tag go on at the id next, 1 or more: the way out of ErrBehind. It goes forward
// only: ErrInvalid for an id below what Redis knows of, and for tags of an SQL database.
// Ranges that services have fetched ahead stay in use.
func (c *Client) SetSegment(ctx context.Context, tag string, next int64) error {
	asked := api.Segment{Tag: tag, Next: strconv.FormatInt(next, 10)}
	set := call{op: "set tag", name: tag, method: http.MethodPut, path: "/id/segment/" + tag, body: api.SegmentRequest{Next: asked.Next}}
	_, err := ask(ctx, c.onNamed, set, func(now api.Segment) bool { return now == asked })
	return err
}

// SnowflakeIDs asks the service to stamp n ids (1 to 10,000) with its own worker id of a pool; ""
// is the service's default pool. It is for programs that need few ids: one that holds a worker id
// stamps without a request. After an error ask again: lost ids are a gap.
func (c *Client) SnowflakeIDs(ctx context.Context, pool string, n int) ([]snowflake.ID, error) {
	stamp := call{op: "stamp ids", name: pool, method: http.MethodGet, path: "/id/snowflake/" + pool + "?n=" + strconv.Itoa(n)}
	if pool == "" {
		// a name like any other, for the check
		stamp.name, stamp.path = "-", "/id/snowflake?n="+strconv.Itoa(n)
	}
	return c.idsOf(ctx, stamp, n)
}

// idsOf makes a call that answers with n ids.
func (c *Client) idsOf(ctx context.Context, asked call, n int) ([]snowflake.ID, error) {
	type made struct {
		IDs []snowflake.ID `json:"ids"` // for the form of the numbers in JSON
	}
	ids, err := ask(ctx, c.onNamed, asked, func(ids made) bool { return len(ids.IDs) == n })
	return ids.IDs, err
}
