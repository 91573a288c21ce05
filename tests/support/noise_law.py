import numpy as np
from scipy import stats


def spectral_slope(sequences: np.ndarray) -> float:
    """Slope of log power over log frequency, averaged over the sequences' periodograms; ``(length, n)``."""
    power = (np.abs(np.fft.rfft(sequences, axis=0)) ** 2).mean(axis=1)
    frequencies = np.fft.rfftfreq(len(sequences))
    # Without the mean and the Nyquist frequency, whose periodograms are real and follow another law
    return float(stats.linregress(np.log(frequencies[1:-1]), np.log(power[1:-1])).slope)


def autocorrelation(length: int, beta: float, lag: int) -> float:
    """The analytic one: a plain sum of cosines over the circular spectrum (Wiener-Khinchin)."""
    numerator = denominator = 0.0
    for k in range(length):
        power = (max(min(k, length - k), 1) / length) ** -beta
        numerator += power * np.cos(2 * np.pi * k * lag / length)
        denominator += power
    return numerator / denominator
