"""SI-SDR, LSD, MS-STFT, mel distances and CLAP: closed forms, other libraries, what is refused."""

from __future__ import annotations

import math
from functools import partial

import auraloss
import librosa
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torchmetrics.functional.audio import scale_invariant_signal_distortion_ratio

from geoshrink_bench.metrics import clap
from geoshrink_bench.metrics.audio import (
    LSD,
    MS_STFT,
    SI_SDR,
    lsd,
    si_sdr,
    spectral_convergence,
)
from geoshrink_bench.metrics.base import Skipped
from geoshrink_bench.metrics.mel import filters, log_mel_l1, mel_cosine, mel_metrics

RATE = 16000
MEL = mel_metrics(RATE)
METRICS = [SI_SDR, LSD, MS_STFT, *MEL]
FUNCTIONS = {
    "si_sdr": si_sdr,
    "lsd": lsd,
    "spectral_convergence": spectral_convergence,
    "mel_cosine": partial(mel_cosine, rate=RATE),
    "log_mel_l1": partial(log_mel_l1, rate=RATE),
}
every_metric = pytest.mark.parametrize("metric", METRICS, ids=lambda m: m.name)


def noise(n=2, samples=4000, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return 0.1 * torch.randn(n, samples, generator=generator, dtype=torch.float64)


def pair(n=2, samples=4000, seed=0):
    """A reference of noise under an envelope, and a noisy copy."""
    reference = noise(n, samples, seed) * torch.linspace(0.1, 1, samples)
    return reference + 0.2 * noise(n, samples, seed + 1), reference


def tone(hz, samples=8000):
    return (2 * math.pi * hz / RATE * torch.arange(samples, dtype=torch.float64)).sin()[None]


@pytest.mark.parametrize("gain", [2.0, 0.5, 10.0])
def test_a_gain_in_closed_form(gain):
    w = noise()
    wanted = {
        "si_sdr": math.inf,
        "lsd": abs(20 * math.log10(gain)),
        "spectral_convergence": abs(gain - 1),
        "mel_cosine": 1,
        "log_mel_l1": abs(2 * math.log(gain)),
    }
    for name, of in FUNCTIONS.items():
        if name == "si_sdr" and gain == 10:
            continue  # no power of two: rounding leaves it finite, at 300 dB
        assert of(gain * w, w).tolist() == pytest.approx([wanted[name]] * 2, rel=1e-4), name


def test_two_times_as_loud_is_six_decibels():
    assert lsd(2 * noise(), noise()).tolist() == pytest.approx([6.0206] * 2, abs=1e-4)


@pytest.mark.parametrize("decibels", [0, 20, 60])
def test_si_sdr_of_a_known_noise_level(decibels):
    level = 10 ** (-decibels / 20)
    w = tone(440) + level * tone(660)
    assert float(si_sdr(w, tone(440))) == pytest.approx(decibels, abs=1e-2)


def test_identical_waveforms():
    w = noise()
    for metric in METRICS:
        best = {"SI-SDR": math.inf, "mel cosine": 1}.get(metric.name, 0)
        assert metric.of(w, w, None).tolist() == pytest.approx([best] * 2), metric.name


def test_distant_tones_share_no_mel_band():
    assert float(mel_cosine(tone(300), tone(4000), RATE)) < 1e-3
    assert float(mel_cosine(tone(300), tone(300) * 0.1, RATE)) == pytest.approx(1)


def test_lsd_takes_the_root_in_each_frame():
    """Half the clip 20 dB off: about 10 dB, where the root of the mean over all would say 14."""
    r = noise(1, 2**15)
    gain = torch.ones(2**15, dtype=torch.float64)
    gain[2**14 :] = 10
    assert float(lsd(r * gain, r)) == pytest.approx(10, abs=0.7)


def test_what_is_silent_in_both_counts_as_equal():
    r = noise(1, 2**15)
    r[:, 2**14 :] = 0
    assert float(lsd(10 * r, r)) == pytest.approx(10, abs=0.7)
    assert float(log_mel_l1(10 * r, r, RATE)) == pytest.approx(math.log(10), rel=0.1)


def test_si_sdr_is_that_of_torchmetrics():
    w, r = pair(3)
    want = scale_invariant_signal_distortion_ratio(w + 0.05, r, zero_mean=True)
    assert si_sdr(w + 0.05, r).tolist() == pytest.approx(want.tolist(), rel=1e-9)


def test_ms_stft_is_that_of_auraloss_per_clip():
    w, r = (t.float() for t in pair())
    loss = auraloss.freq.MultiResolutionSTFTLoss(w_log_mag=0.0)
    want = [float(loss(a[None, None], b[None, None])) for a, b in zip(w, r)]
    assert spectral_convergence(w, r).tolist() == pytest.approx(want, rel=1e-5)


def test_lsd_on_the_spectrograms_of_librosa():
    w, r = pair()
    want = []
    for a, b in zip(w.numpy(), r.numpy()):
        decibels = [
            librosa.power_to_db(
                np.abs(librosa.stft(x, n_fft=2048, hop_length=512, pad_mode="reflect")) ** 2,
                amin=1e-8,
                top_db=None,
            )
            for x in (a, b)
        ]
        want.append(np.sqrt(np.square(decibels[0] - decibels[1]).mean(0)).mean())
    assert lsd(w, r).tolist() == pytest.approx(want, rel=1e-9)


@pytest.mark.parametrize("rate", [8000, 16000, 44100, 48000])
def test_the_mel_filters_are_those_of_librosa(rate):
    want = librosa.filters.mel(sr=rate, n_fft=1024, n_mels=80, dtype=np.float64)
    np.testing.assert_allclose(filters(rate).numpy(), want, rtol=1e-9, atol=1e-15)


def test_mel_distances_on_the_spectrograms_of_librosa():
    w, r = pair()
    cosine, l1 = [], []
    for a, b in zip(w.numpy(), r.numpy()):
        m, n = (
            librosa.feature.melspectrogram(
                y=x, sr=RATE, n_fft=1024, hop_length=256, n_mels=80, pad_mode="reflect"
            ).astype(np.float64)
            for x in (a, b)
        )
        cosine.append((m * n).sum() / math.sqrt((m * m).sum() * (n * n).sum()))
        l1.append(np.abs(np.log(m) - np.log(n)).mean())
    assert mel_cosine(w, r, RATE).tolist() == pytest.approx(cosine, rel=1e-5)
    assert log_mel_l1(w, r, RATE).tolist() == pytest.approx(l1, rel=1e-5)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), gain=st.floats(0.01, 100), offset=st.floats(-1, 1))
def test_si_sdr_does_not_see_gain_and_offset(seed, gain, offset):
    w, r = pair(1, 300, seed)
    assert float(si_sdr(gain * w + offset, r)) == pytest.approx(float(si_sdr(w, r)), abs=1e-6)


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6), samples=st.integers(2048, 3000))
def test_a_clip_does_not_see_its_batch(seed, samples):
    w, r = pair(3, samples, seed)
    for metric in METRICS:
        together = metric.of(w, r, None).tolist()
        assert together == pytest.approx(
            [float(metric.of(w[i : i + 1], r[i : i + 1], None)) for i in range(3)], rel=1e-12
        )


@settings(max_examples=10, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_lsd_and_log_mel_are_distances(seed):
    w, r = pair(1, 2048, seed)
    for of in (lsd, partial(log_mel_l1, rate=RATE)):
        assert float(of(w, r)) == pytest.approx(float(of(r, w))) and float(of(w, r)) > 0


@every_metric
def test_more_noise_is_worse(metric):
    r = noise(1)
    values = [float(metric.of(r + s * noise(1, seed=1), r, None)) for s in (0.01, 0.1, 1.0)]
    assert values == sorted(values, reverse=metric.higher)


@every_metric
def test_lengths_cut_the_clips(metric):
    w, r = pair(2, 4000)
    cut = metric.of(w[:, :2500], r[:, :2500], None)
    w[0, 2500:] = 9
    assert metric.of(w, r, [2500, 4000])[0].item() == pytest.approx(cut[0].item())
    with pytest.raises(ValueError, match=r"2 numbers from 1 to 4000, got \[4000, 4001\]"):
        metric.of(w, r, [4000, 4001])


@every_metric
def test_what_is_no_audio_is_refused(metric):
    w, r = pair(2, 4000)
    silent, broken = w.clone(), w.clone()
    silent[1], broken[1, 7] = 0.25, math.nan
    with pytest.raises(Skipped, match="waveform 1 of 2 is silent"):
        metric.of(silent, r, None)
    with pytest.raises(Skipped, match="reference 1 of 2 is silent"):
        metric.of(w, silent, None)
    with pytest.raises(ValueError, match="1 values of waveform 1 are not finite"):
        metric.of(broken, r, None)
    with pytest.raises(ValueError, match=r"\(2, 4000\) and \(2, 3999\)"):
        metric.of(w, r[:, 1:], None)
    with pytest.raises(ValueError, match=r"\(4000,\) and \(4000,\)"):
        metric.of(w[0], r[0], None)
    with pytest.raises(ValueError, match=r"torch\.int16"):
        metric.of((w * 1000).short(), (r * 1000).short(), None)


@pytest.mark.parametrize("metric", METRICS[1:], ids=lambda m: m.name)
def test_clips_shorter_than_a_frame_are_refused(metric):
    w, r = pair(1, 500)
    with pytest.raises(ValueError, match=r"at least (1024|2048) samples, got \(1, 500\)"):
        metric.of(w, r, None)


def test_rates_that_do_not_fit_are_quoted():
    with pytest.raises(ValueError, match="samples are at 16000 Hz, the reference at 44100 Hz"):
        mel_metrics(16000, 44100)
    with pytest.raises(ValueError, match="at least 1 Hz, got 0"):
        mel_metrics(0)
    with pytest.raises(TypeError, match=r"must be an integer, got 22050\.0"):
        mel_metrics(22050.0)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="lie between the bins"):
        filters(192000)


def test_a_version_names_the_settings():
    assert LSD.version == "1: FFT 2048, hop 512, floor 1e-08"
    assert MEL[0].version == "1: FFT 1024, hop 256, 80 bands, 16000 Hz"
    assert len({m.version for m in METRICS}) == len(METRICS)


WORDS = ["a", "dog", "barks", "rain", "on", "roof"]


def checkpoint(folder, truncation="rand_trunc"):
    """A tiny ClapModel with random weights, its extractor (1 s at 8 kHz) and a word tokenizer."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace
    from transformers import (
        ClapAudioConfig,
        ClapConfig,
        ClapFeatureExtractor,
        ClapModel,
        ClapTextConfig,
        PreTrainedTokenizerFast,
    )

    torch.manual_seed(0)
    text = ClapTextConfig(
        vocab_size=12,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=90,
        projection_dim=8,
        initializer_factor=5.0,
    )
    audio = ClapAudioConfig(
        num_mel_bins=64,
        spec_size=128,
        patch_size=8,
        patch_stride=[8, 8],
        window_size=2,
        depths=[1, 1],
        num_attention_heads=[2, 2],
        patch_embeds_hidden_size=8,
        hidden_size=16,
        projection_dim=8,
        enable_fusion=truncation == "fusion",
        initializer_factor=5.0,
    )
    config = ClapConfig(text_config=text, audio_config=audio, projection_dim=8)
    ClapModel(config).save_pretrained(folder)
    ClapFeatureExtractor(
        feature_size=64,
        sampling_rate=8000,
        hop_length=160,
        max_length_s=1,
        fft_window_size=256,
        frequency_max=4000,
        truncation=truncation,
    ).save_pretrained(folder)
    known = {word: i for i, word in enumerate(["<s>", "<pad>", "</s>", "<unk>", *WORDS])}
    words = Tokenizer(WordLevel(known, unk_token="<unk>"))
    words.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    PreTrainedTokenizerFast(
        tokenizer_object=words, unk_token="<unk>", pad_token="<pad>"
    ).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return checkpoint(tmp_path_factory.mktemp("clap"))


CAPTIONS = ["a dog barks", "rain on a roof"]


def test_clap_is_the_cosine_of_the_model(folder):
    from transformers import AutoTokenizer, ClapFeatureExtractor, ClapModel

    waves = noise(2, 6000).float()
    model = ClapModel.from_pretrained(folder).eval()
    sound = ClapFeatureExtractor.from_pretrained(folder)(
        list(waves.numpy()), sampling_rate=8000, return_tensors="pt"
    )
    text = AutoTokenizer.from_pretrained(folder)(CAPTIONS, padding=True, return_tensors="pt")
    with torch.no_grad():
        found = model(
            input_ids=text["input_ids"],
            attention_mask=text["attention_mask"],
            input_features=sound["input_features"].float(),
            is_longer=sound["is_longer"],
        )
    want = (found.logits_per_audio / model.logit_scale_a.exp()).diagonal()
    got = clap.clap(8000, folder).of(waves, CAPTIONS, None)
    assert got.tolist() == pytest.approx(want.tolist(), abs=1e-5)
    assert abs(got[0] - got[1]) > 1e-3 and got.abs().max() <= 1


@pytest.mark.parametrize("truncation", ["rand_trunc", "fusion"])
def test_clap_is_the_same_twice_and_alone(tmp_path, truncation):
    """Also of clips longer than the model's, of which the extractor draws windows at random."""
    metric = clap.clap(8000, checkpoint(tmp_path, truncation))
    waves = noise(2, 20000)
    np.random.seed(1)
    first = metric.of(waves, CAPTIONS, None)
    drawn = np.random.rand()
    assert metric.of(waves, CAPTIONS, None).tolist() == first.tolist()
    assert metric.of(waves[1:], CAPTIONS[1:], None).tolist() == first[1:].tolist()
    np.random.seed(1)
    assert np.random.rand() == drawn  # the caller's own numbers are left alone


def test_clap_resamples(folder):
    """A tone is the same tone at another rate, and another one where the rate is not heeded."""
    hertz = 2 * math.pi * 700 * torch.arange(8000, dtype=torch.float64)
    fast, slow = (hertz / 14700).sin()[None], (hertz[:4000] / 8000).sin()[None]
    got, want, wrong = (
        float(clap.clap_score(wave[:, : rate // 2], CAPTIONS[:1], rate, folder))
        for wave, rate in ((fast, 14700), (slow, 8000), (fast, 8000))
    )
    assert abs(got - want) < 0.1 * abs(wrong - want)
    at = clap.resampled(tone(440, 16000).numpy(), RATE, 8000)[0]
    np.testing.assert_allclose(at[100:-100], tone(440, 16000)[0, ::2][100:-100], atol=2e-2)


def test_clap_without_a_checkpoint_is_skipped(tmp_path, folder, monkeypatch):
    monkeypatch.delenv("GEOSHRINK_CLAP", raising=False)
    with pytest.raises(Skipped, match=r"needs a CLAP checkpoint .* GEOSHRINK_CLAP: none named"):
        clap.clap(8000).of(noise(), CAPTIONS, None)
    with pytest.raises(Skipped, match=f"no config.json in {tmp_path}"):
        clap.clap(8000, tmp_path).of(noise(), CAPTIONS, None)
    monkeypatch.setenv("GEOSHRINK_CLAP", str(folder))
    assert clap.clap(8000).of(noise(), CAPTIONS, None).isfinite().all()


def test_clap_refuses_what_does_not_fit(folder):
    metric = clap.clap(8000, folder)
    with pytest.raises(
        ValueError, match=r"2 waveforms need as many captions, got \['a dog barks'\]"
    ):
        metric.of(noise(), CAPTIONS[:1], None)
    with pytest.raises(ValueError, match="caption 1 must be some words, got ' '"):
        metric.of(noise(), ["rain", " "], None)
    with pytest.raises(ValueError, match="as many captions, got 'rain'"):
        metric.of(noise(), "rain", None)
    with pytest.raises(Skipped, match="waveform 0, 1 of 2 is silent"):
        metric.of(torch.zeros(2, 8000), CAPTIONS, None)
    with pytest.raises(ValueError, match=r"got \(8000,\)"):
        metric.of(torch.zeros(8000), CAPTIONS, None)
    with pytest.raises(ValueError, match="takes whole clips"):
        metric.of(noise(), CAPTIONS, [8, 8])
    with pytest.raises(ValueError, match="at least 1 Hz, got -1"):
        clap.clap(-1, folder).of(noise(), CAPTIONS, None)
