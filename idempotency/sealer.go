package idempotency

import (
	"crypto/aes"
	"crypto/cipher"
	"fmt"

	"github.com/coatcheck/coatcheck/redisstore"
)

// sealer writes answers as they are stored, encrypted if there are keys: AES-256 in Galois/counter
// mode (NIST SP 800-38D) with a random nonce of 96 bits, which is good for 2^32 answers a key. The
// record's name is authenticated with it, so that an answer cannot be moved to another token. The
// zero value stores answers unencrypted. It is safe for concurrent use.
type sealer struct {
	newest string // the key that encrypts; "" = none
	keys   map[string]cipher.AEAD
}

func newSealer(keys []Secret) sealer {
	if err := checkKeys(keys); err != nil {
		panic(fmt.Errorf("idempotency: answer keys: %w", err))
	}
	v := sealer{keys: map[string]cipher.AEAD{}}
	for i, key := range keys {
		block, err := aes.NewCipher(key.Value)
		if err != nil {
			panic(err) // the length is right
		}
		if v.keys[key.ID], err = cipher.NewGCMWithRandomNonce(block); err != nil {
			panic(err) // AES has the block size that it takes
		}
		if i == 0 {
			v.newest = key.ID
		}
	}
	return v
}

// seal returns an answer as it is stored in a record.
func (v sealer) seal(record string, answer Answer) []byte {
	plain := answer.encode()
	if v.newest == "" {
		return plain
	}
	// the cipher makes a nonce itself, and takes none
	return v.keys[v.newest].Seal([]byte(sealedVersion+" "+v.newest+" "), nil, plain, []byte(record)) //nolint:gosec // as above
}

// open reads a stored answer. One that was stored before there were keys is read unencrypted; one
// under an unknown key, or that was changed, is not readable: nothing is replayed and nothing runs.
func (v sealer) open(record, stored string) (Answer, error) {
	from := storedText{rest: stored}
	if from.word() != sealedVersion {
		return decodeAnswer(stored)
	}
	key, known := v.keys[from.word()]
	if !known {
		return Answer{}, fmt.Errorf("%w: the stored answer is encrypted with a key that is not here", redisstore.ErrUnavailable)
	}
	plain, err := key.Open(nil, nil, []byte(from.rest), []byte(record))
	if err != nil {
		return Answer{}, fmt.Errorf("%w: the stored answer cannot be decrypted", redisstore.ErrUnavailable)
	}
	return decodeAnswer(string(plain))
}
