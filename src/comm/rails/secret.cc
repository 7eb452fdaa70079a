// RailSecret: the only file of this folder that includes OpenSSL.
#include "comm/rails/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include <cstring>

#include "base/check.h"
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

struct RailSealer::State {
  EVP_CIPHER_CTX* cipher = EVP_CIPHER_CTX_new();
  ~State() { EVP_CIPHER_CTX_free(cipher); }
};

RailSealer::RailSealer(const RailProof& key) : state_(std::make_unique<State>()) {
  const auto bytes = reinterpret_cast<const unsigned char*>(key.data());
  MR_CHECK(state_->cipher != nullptr &&
           EVP_EncryptInit_ex(state_->cipher, EVP_aes_256_gcm(), nullptr, bytes, nullptr) == 1);
}

RailSealer::~RailSealer() = default;
RailSealer::RailSealer(RailSealer&&) noexcept = default;

// GCM of no text: all that is said is beside it.
RailTag RailSealer::tag(uint64_t number, std::span<const std::byte> said) {
  unsigned char place[12] = {}, nothing[16];
  std::memcpy(place, &number, sizeof number);
  RailTag tag;
  int bytes = 0;
  EVP_CIPHER_CTX* c = state_->cipher;
  const bool ok =
      EVP_EncryptInit_ex(c, nullptr, nullptr, nullptr, place) == 1 &&
      EVP_EncryptUpdate(c, nullptr, &bytes, reinterpret_cast<const unsigned char*>(said.data()),
                        static_cast<int>(said.size())) == 1 &&
      EVP_EncryptFinal_ex(c, nothing, &bytes) == 1 &&
      EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(tag.size()), tag.data()) == 1;
  MR_CHECK(ok, "number=%lu", static_cast<unsigned long>(number));
  return tag;
}

bool RailSealer::fits(const RailTag& tag, uint64_t number, std::span<const std::byte> said) {
  return CRYPTO_memcmp(this->tag(number, said).data(), tag.data(), tag.size()) == 0;
}

}  // namespace moraine
