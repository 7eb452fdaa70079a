// RailSecret: the only file of this folder that includes OpenSSL.
#include "comm/rails/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/error.h"

namespace moraine {

RailNonce make_nonce() {
  RailNonce nonce;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(nonce.data()), nonce.size()) != 1)
    throw_error(Code::kIo, "start rails: the system gives no random bytes");
  return nonce;
}

RailProof prove(const std::string& secret, std::span<const std::byte> said) {
  RailProof proof;
  unsigned int bytes = proof.size();
  HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()),
       reinterpret_cast<const unsigned char*>(said.data()), said.size(),
       reinterpret_cast<unsigned char*>(proof.data()), &bytes);
  return proof;
}

bool same_proof(const RailProof& a, const RailProof& b) {
  return CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace moraine
