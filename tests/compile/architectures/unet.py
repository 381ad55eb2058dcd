"""The middle of a diffusion model: residual blocks that know the time step, attention, down- and upsampling."""

from __future__ import annotations

import math

import torch
from torch import nn
from torch.nn import functional


def timestep_embedding(timesteps: torch.Tensor, width: int) -> torch.Tensor:
    """Sines and cosines of a time step at `width // 2` frequencies: int64 [batch] to float32 [batch, width]."""
    frequencies = torch.exp(torch.arange(width // 2) * (-math.log(10_000) / (width // 2)))
    angles = timesteps[:, None] * frequencies
    return torch.cat([angles.sin(), angles.cos()], dim=-1)


class ResidualBlock(nn.Module):
    """Two convolutions behind group norms, with the time step's embedding added between them."""

    def __init__(self, channels: int, out_channels: int, time_width: int, groups: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.GroupNorm(groups, channels), nn.GroupNorm(groups, out_channels)
        self.conv1 = nn.Conv2d(channels, out_channels, 3, padding=1)
        self.conv2 = nn.Conv2d(out_channels, out_channels, 3, padding=1)
        self.time = nn.Linear(time_width, out_channels)
        self.skip = nn.Conv2d(channels, out_channels, 1) if channels != out_channels else nn.Identity()

    def forward(self, x: torch.Tensor, time: torch.Tensor) -> torch.Tensor:
        hidden = self.conv1(functional.silu(self.norm1(x)))
        hidden = hidden + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.conv2(functional.silu(self.norm2(hidden)))


class SpatialAttention(nn.Module):
    """Self-attention over all pixels."""

    def __init__(self, channels: int, heads: int, groups: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.GroupNorm(groups, channels)
        self.qkv, self.out = nn.Linear(channels, 3 * channels), nn.Linear(channels, channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, channels, height, width = x.shape
        pixels = self.norm(x).flatten(2).transpose(1, 2)
        qkv = self.qkv(pixels).view(batch, height * width, 3, self.heads, channels // self.heads)
        attended = functional.scaled_dot_product_attention(*qkv.permute(2, 0, 3, 1, 4).unbind(0))
        out = self.out(attended.transpose(1, 2).reshape(batch, height * width, channels))
        return x + out.transpose(1, 2).view(batch, channels, height, width)


class UNet(nn.Module):
    """One level of a U-Net: down by two, attention at half the size, up again beside the skip connection."""

    def __init__(self, channels: int, heads: int, groups: int) -> None:
        super().__init__()
        self.channels = channels
        time_width = 4 * channels
        self.time = nn.Sequential(nn.Linear(channels, time_width), nn.SiLU(), nn.Linear(time_width, time_width))
        self.first = nn.Conv2d(4, channels, 3, padding=1)
        self.down_block = ResidualBlock(channels, channels, time_width, groups)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.middle = ResidualBlock(channels, 2 * channels, time_width, groups)
        self.attention = SpatialAttention(2 * channels, heads, groups)
        self.up = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.up_block = ResidualBlock(2 * channels, channels, time_width, groups)
        self.norm, self.last = nn.GroupNorm(groups, channels), nn.Conv2d(channels, 4, 3, padding=1)

    def forward(self, sample: torch.Tensor, timesteps: torch.Tensor) -> torch.Tensor:
        """Predicted noise of [batch, 4, height, width] at int64 [batch] time steps."""
        time = self.time(timestep_embedding(timesteps, self.channels).to(sample.dtype))
        high = self.down_block(self.first(sample), time)
        low = self.attention(self.middle(self.down(high), time))
        up = self.up(functional.interpolate(low, scale_factor=2.0, mode="nearest"))
        merged = self.up_block(torch.cat([up, high], dim=1), time)
        return self.last(functional.silu(self.norm(merged)))
